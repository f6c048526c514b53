"""Fetches the jars that the Java suites run, and says which class path each set of them is.

    python jars.py FOLDER        fetches what FOLDER lacks; prints `set<TAB>class path`, a line for each set
    python jars.py --sums        prints jars.txt with the sums that are served now, to check a change of versions by

`jars.txt` pins every jar by its coordinate and its sum: a jar with another sum is an error, whoever serves it. Where
artifacts come from is the `jgo` package's affair; a mirror of Maven Central in the user's Maven settings is used. Must
not resolve versions: nothing comes that is not in the list. Must not touch the user's own repository of jars.
"""

import hashlib
import pathlib
import sys
import tempfile
import xml.etree.ElementTree

import jgo.maven

LIST = pathlib.Path(__file__).with_name("jars.txt")
SETTINGS = pathlib.Path.home() / ".m2" / "settings.xml"
DEADLINE = 120
"""Seconds for one answer of the server; the largest jar has 45 MB."""


def main(arguments):
    match arguments:
        case ["--sums"]:
            with tempfile.TemporaryDirectory() as folder:
                central = context(pathlib.Path(folder))
                print("".join(f"{name} {jar} {sum_of(fetch(central, jar))}\n" for name, jar, _ in pinned()), end="")
        case [folder]:
            for name, jars in fetch_all(pathlib.Path(folder)).items():
                print(name, ":".join(map(str, jars)), sep="\t")
        case _:
            sys.exit(__doc__)


def fetch_all(folder):
    """{set: [path, ...]} of jars that are all what the list says."""
    central, sets = context(folder), {}
    for name, jar, expected in pinned():
        path = fetch(central, jar)
        if (found := sum_of(path)) != expected:
            # It would be found again the next time.
            path.unlink()
            sys.exit(f"{jar}: the sum is {found}, and jars.txt says {expected}")
        sets.setdefault(name, []).append(path)
    return sets


def pinned():
    """The lines of the list: set, `group:artifact:version[:classifier]`, sum."""
    lines = [line.split() for line in LIST.read_text().splitlines()]
    return [tuple(line) for line in lines if line and not line[0].startswith("#")]


def context(folder):
    here = mirror()
    return jgo.maven.MavenContext(
        repo_cache=folder,
        local_repos=[],
        remote_repos={"central": here} if here else None,
        resolver=jgo.maven.PythonResolver(),
        timeout=DEADLINE,
    )


def fetch(central, jar):
    group, artifact, version, *classifier = jar.split(":")
    return central.project(group, artifact).at_version(version).artifact(*classifier).resolve()


def mirror():
    """What the user's Maven settings name in place of Maven Central, if they do."""
    try:
        settings = xml.etree.ElementTree.parse(SETTINGS)
    except OSError:
        return None
    for found in settings.iterfind("{*}mirrors/{*}mirror"):
        if {"*", "central"} & set(found.findtext("{*}mirrorOf", "").split(",")):
            return found.findtext("{*}url")
    return None


def sum_of(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
