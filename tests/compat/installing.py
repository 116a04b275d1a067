"""How programs that tests use are fetched: once, into `.tools`, by one test run at a time.

    jars = maven_folder(pom)            # .tools/maven-connect of connect.xml
    python = python_of(requirements)    # .tools/python-faust/bin/python of faust.txt
    folder = debian_folder(packages)    # .tools/debian-rsyslog/usr/sbin/rsyslogd of rsyslog.txt, installed nowhere else
    node_modules(folder)                # `npm ci` in the folder of a package-lock.json

Nothing is copied into the repository.  What cannot be fetched skips the test, and fails it with CI=true; a mirror that
fails for a moment is asked again, and neither that nor the wait for another run counts as the test's own time.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.limits import standing_still
from tests.tools import missing, require_tool

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / ".tools"
# Seconds before each further attempt, and those that an attempt may take.
PAUSES = (5, 20)
PATIENCE = 1200
# What fetches nothing fails in the same way each time.
COMPILERS = ("javac", "dpkg", "tsc")

LOG4J2 = """status=error
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.c.ref=c
"""


class Locked:
    """One installer at a time, whatever number of test runs share the tree."""

    def __init__(self, name: str) -> None:
        TOOLS.mkdir(exist_ok=True)
        self._file = (TOOLS / f"{name}.lock").open("w")

    def __enter__(self) -> None:
        with standing_still():
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def install(command: Sequence[str], cwd: Path, what: str) -> None:
    """Run an installer or a compiler in `cwd`; `missing` with the end of its output where it fails."""
    said = ""
    with standing_still():
        for pause in (0,) if Path(command[0]).name in COMPILERS else (0, *PAUSES):
            time.sleep(pause)
            try:
                done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                said = f"it was not through within {PATIENCE} s"
                continue
            if done.returncode == 0:
                return
            said = (done.stderr or done.stdout).strip()[-300:]
    missing(what, f"{command[0]} could not provide them: {said}")


def _stamp(source: Path) -> str:
    """What a fetched folder was made of: the digest of the file that lists its packages."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


def maven_folder(pom: Path) -> Path:
    """The folder of a Maven project's jars, and `log4j2-INFO.properties`, fetched on first use and when it changes."""
    require_tool("java")
    folder, stamp = TOOLS / f"maven-{pom.stem}", _stamp(pom)
    done = folder / "complete"
    with Locked(folder.name):
        if not done.exists() or done.read_text() != stamp:
            require_tool("mvn")
            for old in folder.glob("*.jar"):
                old.unlink()
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            install([*command, f"-DoutputDirectory={folder}"], pom.parent, f"the jars of {pom.name}")
            (folder / "log4j2-INFO.properties").write_text(LOG4J2.format(level="INFO"))
            done.write_text(stamp)
    return folder


def java_classes(source: Path, jars: Path) -> Path:
    """The folder of a Java source's classes, compiled against a folder of jars where it, or they, are newer."""
    require_tool("java")
    target = TOOLS / f"classes-{source.stem}"
    done = target / "complete"
    with Locked(target.name):
        stamp = _stamp(source) + (jars / "complete").read_text()
        if not done.exists() or done.read_text() != stamp:
            require_tool("javac")
            install(["javac", "-cp", f"{jars}/*", "-d", str(target), str(source)], source.parent, source.name)
            done.write_text(stamp)
    return target


def python_of(requirements: Path) -> Path:
    """A Python of its own with the packages of a requirements file, made on first use and when it changes."""
    folder, stamp = TOOLS / f"python-{requirements.stem}", _stamp(requirements)
    done = folder / "complete"
    with Locked(folder.name):
        if not done.exists() or done.read_text() != stamp:
            install([sys.executable, "-m", "venv", "--clear", str(folder)], ROOT, "a virtual environment")
            pip = [str(folder / "bin" / "pip"), "--disable-pip-version-check", "install", "-q", "-r", str(requirements)]
            install(pip, ROOT, f"the packages of {requirements.name}")
            done.write_text(stamp)
    return folder / "bin" / "python"


def node_modules(folder: Path) -> Path:
    """The folder of a Node project with its packages installed; they are installed anew when its lock changes."""
    require_tool("node")
    done, stamp = folder / "node_modules" / ".package-lock.json", _stamp(folder / "package-lock.json")
    mark = folder / "node_modules" / ".made-of"
    with Locked(f"node-{folder.name}"):
        if not done.exists() or not mark.exists() or mark.read_text() != stamp:
            require_tool("npm")
            install(["npm", "ci", "--no-audit", "--no-fund"], folder, f"the Node project {folder.name}")
            mark.write_text(stamp)
    return folder


def compiled_node(folder: Path) -> Path:
    """The same, with its TypeScript compiled into `dist` as its `tsconfig.json` says."""
    node_modules(folder)
    with Locked(f"node-{folder.name}"):
        install(["node_modules/.bin/tsc"], folder, f"TypeScript of {folder.name}")
    return folder


def debian_folder(packages: Path) -> Path:
    """A folder in which Debian's packages are unpacked, fetched on first use and when the list changes.

    The list has a package in each line, the one that is tested first, with the release of it (`rsyslog=8.2302.0`):
    where the machine's Debian has another one, that is `missing`.
    """
    names = packages.read_text().split()
    tested, _, release = names[0].partition("=")
    folder, stamp = TOOLS / f"debian-{packages.stem}", _stamp(packages)
    done = folder / "complete"
    with Locked(folder.name):
        if not done.exists() or done.read_text() != stamp:
            require_tool("apt-get")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(["apt-get", "download", "-q", tested, *names[1:]], folder, f"Debian's packages {' '.join(names)}")
            if not list(folder.glob(f"{tested}_{release}-*.deb")):
                found = ", ".join(path.name for path in folder.glob(f"{tested}_*.deb"))
                missing(f"{tested} {release}", f"this Debian has {found}")
            for package in folder.glob("*.deb"):
                install(["dpkg", "-x", str(package), str(folder)], folder, package.name)
            done.write_text(stamp)
    return folder
