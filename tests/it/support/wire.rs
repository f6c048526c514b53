//! Bytes of TLS and HTTP/2 by hand, for what no well-made client sends; and a proxy that says who is behind it.
//!
//! Everything has a deadline. Must not know a credential.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::PKI;
use super::schemes::Certified;

/// Who a client of TLS is.
pub(crate) enum Shown<'a> {
    Certificate(&'a Certified),
    Nothing,
}

/// A client of the run's own CA that speaks these versions and offers these protocols.
pub(crate) fn client(versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]], shown: Shown<'_>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(PKI.ca.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        Shown::Nothing => builder.with_no_client_auth(),
        Shown::Certificate(own) => builder.with_client_auth_cert(vec![own.der.clone()], own.key()).unwrap(),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// A connection over which the server has said its first frame: a client of TLS 1.3 learns only then that it is let in.
pub(crate) async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Wire> {
    let connected = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        stream.write_all(PREFACE).await?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        let mut wire = Wire { stream, unread: Vec::new() };
        wire.next().await?;
        Ok(wire)
    };
    timeout(DEADLINE, connected).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A connection of HTTP/2.
pub(crate) struct Wire {
    pub(crate) stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The first whole frame and what follows it.
    fn read(bytes: &[u8]) -> Option<(Self, Vec<u8>)> {
        let (&[a, b, c, kind, _, s1, s2, s3, s4], rest) = bytes.split_first_chunk::<9>()?;
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
        let (payload, rest) = rest.split_at_checked(length)?;
        let stream = u32::from_be_bytes([s1, s2, s3, s4]);
        Some((Self { kind, stream, payload: payload.to_vec() }, rest.to_vec()))
    }
}

impl Wire {
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends all of this while it reads, until the server hangs up; gives what the server said.
    pub(crate) async fn flood(self, bytes: &[u8]) -> Vec<Frame> {
        let (mut reader, mut writer) = tokio::io::split(self.stream);
        // Fails when the server hangs up early, which is what is asked of it.
        let send = async { drop(writer.write_all(bytes).await) };
        let mut said = self.unread;
        let read = async { drop(reader.read_to_end(&mut said).await) };
        let both = async {
            tokio::pin!(send);
            tokio::select! {
                () = read => (),
                () = async { send.await; std::future::pending().await } => (),
            }
        };
        assert!(timeout(DEADLINE, both).await.is_ok(), "the connection stays open");
        let mut frames = Vec::new();
        while let Some((frame, rest)) = Frame::read(&said) {
            frames.push(frame);
            said = rest;
        }
        frames
    }

    /// The next frame of the server.
    pub(crate) async fn next(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((frame, rest)) = Frame::read(&self.unread) {
                self.unread = rest;
                return Ok(frame);
            }
            let mut more = [0; 4096];
            let read = timeout(DEADLINE, self.stream.read(&mut more)).await;
            match read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.unread.extend_from_slice(&more[..count]),
            }
        }
    }

    /// What becomes of a stream: the first frame about it, or the end of the connection.
    pub(crate) async fn fate(&mut self, stream: u32) -> Fate {
        loop {
            match self.next().await {
                Ok(Frame { kind: GOAWAY, .. }) => return Fate::Gone,
                Ok(Frame { kind: RST_STREAM, stream: at, .. }) if at == stream => return Fate::Reset,
                Ok(Frame { kind: HEADERS, stream: at, payload }) if at == stream => return Fate::Answered(payload),
                Ok(_) => (),
                Err(problem) => {
                    assert_ne!(problem.kind(), io::ErrorKind::TimedOut, "the server says nothing");
                    return Fate::Gone;
                }
            }
        }
    }
}

/// What becomes of a stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// With this block of headers.
    Answered(Vec<u8>),
    Gone,
    Reset,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [length.split_at(1).1, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, in one frame. Names and values are not looked at.
pub(crate) fn call(stream: u32, path: &str, headers: &[(&str, &[u8])]) -> Vec<u8> {
    // `:method: POST` and `:scheme: https` are entries of the static table.
    let mut block = vec![0x83, 0x87];
    for (name, value) in [(":path", path.as_bytes()), (":authority", b"localhost")]
        .into_iter()
        .chain([("te", b"trailers".as_slice()), ("content-type", b"application/grpc")])
        .chain(headers.iter().copied())
    {
        block.push(0);
        for text in [name.as_bytes(), value] {
            // A length below 127 is one byte.
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend_from_slice(text);
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// The one message of a call, empty, and its end.
pub(crate) fn nothing(stream: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, &[0; 5])
}

/// A proxy before a gate, on an address of its own, that says for every connection who is behind it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

impl Proxy {
    /// Says this before it passes anything on.
    pub(crate) async fn saying(header: String, gate: SocketAddr) -> Self {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((mut client, _)) = socket.accept().await {
                let header = header.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(gate).await?;
                    server.write_all(header.as_bytes()).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { address, _serving: tokio_util::task::AbortOnDropHandle::new(serving) }
    }
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// Longer than anything here takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
