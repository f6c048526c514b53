"""Gates whose chain takes certificates and passwords beside the run's key, and what signs in there.

CAs, certificates and hashes are made for a run and lie beside its configuration only while a gate needs them. Must not
know a client, and must not assert anything.
"""

import contextlib
import datetime
import signal
import subprocess
import time
import uuid

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from conftest import DEADLINE
from wire import binary, own_gate

PASSWORDS = {"alice": "open:sesame:1", "bob": "correct-horse", "carol": "battery-stapl", "dave": "päßwörd"}
"""What clients have trouble with: colons, and lengths that need two, one and no `=` of padding."""

RELOADED = "were read again"
KEPT = "nothing was reloaded"


class Authority:
    """A CA of clients."""

    def __init__(self, name):
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        built = self.builder(self.name, self.key).add_extension(x509.BasicConstraints(True, None), critical=True)
        built = built.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        self.certificate = built.sign(self.key, hashes.SHA256())
        self.pem = pem(self.certificate)

    def builder(self, subject, key):
        now = datetime.datetime.now(datetime.UTC)
        built = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        built = built.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        return built.not_valid_after(now + datetime.timedelta(days=2))

    def service(self, name):
        """The certificate of a service, by its SPIFFE id."""
        key = ec.generate_private_key(ec.SECP256R1())
        uri = x509.UniformResourceIdentifier(f"spiffe://corp/svc/{name}")
        built = self.builder(x509.Name([]), key)
        built = built.add_extension(x509.SubjectAlternativeName([uri]), critical=True)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        return Certificate(built.sign(self.key, hashes.SHA256()), key)

    def revoking(self, *certificates):
        """A list that is good for a day."""
        now = datetime.datetime.now(datetime.UTC)
        built = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        built = built.last_update(now - datetime.timedelta(hours=1)).next_update(now + datetime.timedelta(days=1))
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        built = built.add_extension(identifier, critical=False).add_extension(x509.CRLNumber(1), critical=False)
        for certificate in certificates:
            revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial)
            built = built.add_revoked_certificate(revoked.revocation_date(now - datetime.timedelta(hours=1)).build())
        return pem(built.sign(self.key, hashes.SHA256()))


class Certificate:
    """A client's certificate and its key, as text."""

    def __init__(self, certificate, key):
        self.serial, self.chain = certificate.serial_number, pem(certificate)
        kind = serialization.PrivateFormat.PKCS8
        self.key = key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()


def pem(what):
    return what.public_bytes(serialization.Encoding.PEM).decode()


def hash_of(password):
    """What `portcullis hash-password` prints for a password that is piped into it."""
    ran = subprocess.run([binary(), "hash-password"], input=password.encode(), capture_output=True, timeout=DEADLINE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode().strip()


def users_of(passwords):
    """`users.toml` with these users."""
    return "".join(f'[user.{user}]\npassword = "{hash_of(password)}"\n\n' for user, password in passwords.items())


class Files:
    """Files beside the run's configuration, of a gate of its own; they go away with it."""

    def __init__(self, gate):
        self.folder, self.mark, self.made = gate.folder, uuid.uuid4().hex[:12], []

    def write(self, name, text):
        """Replaces a file as a whole, and gives its path."""
        path, fresh = (self.folder / f"own-{self.mark}.{kind}" for kind in (name, f"{name}.fresh"))
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(path)
        self.made.append(path)
        return path

    def remove(self):
        for path in self.made:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def files_beside(gate):
    files = Files(gate)
    try:
        yield files
    finally:
        files.remove()


@contextlib.contextmanager
def gate_with_users(gate, files, users, more=""):
    """Takes the run's key and the passwords of a `users.toml`."""
    users = files.write("users.toml", users)
    chain = f'\n[[auth]]\nscheme = "password"\nusers = "{users.name}"\n{more}'
    with own_gate(gate, chain) as own:
        yield own


@contextlib.contextmanager
def gate_with_certificates(gate, files, authority, more=""):
    """Takes the certificates of a CA's services, who may also come without one, and the run's key."""
    ca, crl = files.write("ca.pem", authority.pem), files.write("crl.pem", authority.revoking())
    asked = f'client_ca = "{ca.name}"\nclient_auth = "optional"\nclient_cert = "identity"\ncrl = ["{crl.name}"]\n'
    rules = '\n[[auth]]\nscheme = "mtls"\nprincipal = [{ uri = "spiffe://corp/svc/*", as = "svc-$1" }]\n'

    def change(text):
        before, header, after = text.partition("[server.tls]\n")
        assert header, "the configuration of the run has no TLS"
        return before + header + asked + after

    with own_gate(gate, rules + more, change=change) as own:
        yield own


def reloaded(own, said=RELOADED):
    """Has a gate read its files again, and waits until it says how that went."""
    before = own.log().count(said)
    own.process.send_signal(signal.SIGHUP)
    ends = time.monotonic() + DEADLINE
    while own.log().count(said) == before:
        if time.monotonic() > ends:
            pytest.fail(f"no line with `{said}`:\n{own.log()[-2000:]}")
        time.sleep(0.05)
