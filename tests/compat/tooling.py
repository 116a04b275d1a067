"""What the compatibility tests need beside Python: Java with Kafka's own jars, Node with its client, kcat.

Nothing here is copied into the repository.  `make test-tools` installs Java, Maven, Node and kcat from Debian's
packages; the jars come by the Maven project in `java/`, the Node client by the npm project in `node/`, both on
first use.  A missing tool skips the test with one line that says how to get it; with CI=true it fails instead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.compat.installing import LOG4J2, Locked, install, node_modules
from tests.compat.installing import ROOT as ROOT
from tests.compat.installing import TOOLS as TOOLS
from tests.compat.shared_classes import shared_classes
from tests.tools import require_tool

HERE = Path(__file__).resolve().parent
KAFKA_VERSION = "4.3.1"
# The last release with ZooKeeper.
OLD_KAFKA_VERSION = "3.9.1"
# The last one that Java 17 runs.
APICURIO_VERSION = "3.0.9"


def kafka_jars() -> Path:
    """The folder of Kafka's jars and the compiled driver, fetched and compiled on first use."""
    require_tool("java")
    folder = TOOLS / f"kafka-{KAFKA_VERSION}"
    driver = HERE / "java" / "Driver.java"
    with Locked("kafka"):
        if not (folder / "complete").exists():
            require_tool("mvn")
            command = ["mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), "dependency:copy-dependencies"]
            install([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], HERE, "Kafka's jars")
            for level in ("ERROR", "INFO"):
                (folder / f"log4j2-{level}.properties").write_text(LOG4J2.format(level=level))
            (folder / "complete").touch()
        compiled = folder / "classes" / "Driver.class"
        if not compiled.exists() or compiled.stat().st_mtime < driver.stat().st_mtime:
            require_tool("javac")
            target = str(folder / "classes")
            install(["javac", "-cp", f"{folder}/*", "-d", target, str(driver)], HERE, "the Java driver")
    return folder


def streams_jars() -> Path:
    """The folder of Kafka Streams' jars and the application of the tests, fetched and compiled on first use."""
    require_tool("java")
    folder = TOOLS / f"kafka-streams-{KAFKA_VERSION}"
    source = HERE / "java" / "streams" / "WordCount.java"
    with Locked("kafka-streams"):
        if not (folder / "complete").exists():
            require_tool("mvn")
            command = [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(HERE / "java" / "streams" / "pom.xml"),
                "dependency:copy-dependencies",
            ]
            install([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], HERE, "Kafka Streams")
            (folder / "log4j2-ERROR.properties").write_text(LOG4J2.format(level="ERROR"))
            (folder / "complete").touch()
        compiled = folder / "classes" / "WordCount.class"
        if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            require_tool("javac")
            target = str(folder / "classes")
            install(["javac", "-cp", f"{folder}/*", "-d", target, str(source)], HERE, "the Streams application")
    return folder


def old_kafka_jars() -> Path:
    """The folder of the jars of Kafka's last release with ZooKeeper, fetched on first use."""
    require_tool("java")
    folder = TOOLS / f"kafka-{OLD_KAFKA_VERSION}"
    with Locked("old-kafka"):
        if not (folder / "complete").exists():
            require_tool("mvn")
            command = ["mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), "dependency:copy-dependencies"]
            version = f"-Dkafka.version={OLD_KAFKA_VERSION}"
            install([*command, version, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], HERE, "Kafka's jars")
            (folder / "log4j2-INFO.properties").write_text(LOG4J2.format(level="INFO"))
            (folder / "complete").touch()
    return folder


def schema_registry_jar() -> Path:
    """The program of Apicurio Registry, a schema registry that keeps its schemas in Kafka, fetched on first use."""
    require_tool("java")
    folder = TOOLS / f"apicurio-{APICURIO_VERSION}"
    with Locked("apicurio"):
        if not (folder / "complete").exists():
            require_tool("mvn")
            artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
            # Without a project Maven keeps a note of what was unpacked in the folder that it runs in.
            options = [f"-DoutputDirectory={folder}", "-Dmdep.overWriteReleases=true"]
            install(["mvn", "-q", "-B", "dependency:unpack", artifact, *options], TOOLS, "Apicurio Registry")
            (folder / "complete").touch()
    return folder / f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"


def old_client_jars(version: str, project: str) -> Path:
    """The folder of the jars of an older client, by the project `java/old/<project>.xml`, fetched on first use."""
    require_tool("java")
    folder = TOOLS / f"{project}-{version}"
    with Locked(f"{project}-{version}"):
        if not (folder / "complete").exists():
            require_tool("mvn")
            pom = str(HERE / "java" / "old" / f"{project}.xml")
            command = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-Dclient.version={version}"]
            install([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], HERE, f"Kafka {version}")
            (folder / "complete").touch()
    return folder


def old_kafka_python() -> Path:
    """A Python of its own with kafka-python 1.4, made on first use."""
    folder = TOOLS / "kafka-python-1.4.7"
    with Locked("kafka-python-1.4.7"):
        if not (folder / "complete").exists():
            install([sys.executable, "-m", "venv", str(folder)], HERE, "a virtual environment")
            pip = [str(folder / "bin" / "pip"), "install", "-q", "kafka-python==1.4.7"]
            install(pip, HERE, "kafka-python 1.4")
            (folder / "complete").touch()
    return folder / "bin" / "python"


def old_confluent(version: str, python: str = sys.executable) -> Path:
    """A Python of its own with confluent-kafka, and librdkafka, of this version, made on first use."""
    folder = TOOLS / f"confluent-kafka-{version}"
    with Locked(folder.name):
        if not (folder / "complete").exists():
            install([python, "-m", "venv", str(folder)], HERE, "a virtual environment")
            pip = [str(folder / "bin" / "pip"), "install", "-q", "--only-binary=:all:", f"confluent-kafka=={version}"]
            install(pip, HERE, f"confluent-kafka {version}")
            (folder / "complete").touch()
    return folder / "bin" / "python"


_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


def old_java_command(java_class: str, *args: str, heap: str = "384m") -> list[str]:
    """The same for Kafka's last release with ZooKeeper; ZooKeeper is among its jars."""

    def command(java_class: str, *args: str, options: Sequence[str] = ()) -> list[str]:
        logging = [
            f"-Dlog4j2.configurationFile={folder / 'log4j2-INFO.properties'}",
            f"-Dlog4j.configuration=file:{HERE / 'java' / 'log4j.properties'}",
        ]
        return ["java", f"-Xmx{heap}", *_OPTIONS, *options, *logging, "-cp", f"{folder}/*", java_class, *args]

    folder = old_kafka_jars()
    return command(java_class, *args, options=shared_classes(folder, command))


def streams_command(*args: str, heap: str = "160m") -> list[str]:
    """A command line that runs the Streams application of the tests."""
    folder = streams_jars()
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2-ERROR.properties'}"
    return ["java", f"-Xmx{heap}", *_OPTIONS, logging, "-cp", f"{folder}/classes:{folder}/*", "WordCount", *args]


def compiled(source: Path) -> Path:
    """The folder of a Java source's classes, compiled against Kafka's jars where it is newer."""
    folder = kafka_jars()
    target = TOOLS / f"classes-{source.stem}"
    with Locked("kafka"):
        classes = target / f"{source.stem}.class"
        if not classes.exists() or classes.stat().st_mtime < source.stat().st_mtime:
            require_tool("javac")
            install(["javac", "-cp", f"{folder}/*", "-d", str(target), str(source)], HERE, source.name)
    return target


def java_command(
    java_class: str, *args: str, heap: str = "192m", level: str = "ERROR", classes: Path | None = None
) -> list[str]:
    """A command line that runs one Java class out of Kafka's jars, tuned for a short life; `classes`: of our own."""

    def command(java_class: str, *args: str, options: Sequence[str] = ()) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={folder / f'log4j2-{level}.properties'}"
        path = f"{folder}/*:{folder / 'classes' if classes is None else classes}"
        return ["java", f"-Xmx{heap}", *_OPTIONS, *options, logging, "-cp", path, java_class, *args]

    folder = kafka_jars()
    return command(java_class, *args, options=shared_classes(folder, command))


def run_java(java_class: str, *args: str, stdin: bytes = b"", seconds: float = 200) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; its output as text."""
    done = subprocess.run(
        java_command(java_class, *args), input=stdin, capture_output=True, timeout=seconds, check=False
    )
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def node_folder() -> Path:
    """The folder of the Node project with its packages installed."""
    return node_modules(HERE / "node")


def go_clients() -> Path:
    """The program of franz-go and sarama, built on first use."""
    require_tool("go")
    folder, program = HERE / "go", TOOLS / "go-clients"
    with Locked("go"):
        sources = [folder / name for name in ("main.go", "monitors.go", "go.mod", "go.sum")]
        if not program.exists() or program.stat().st_mtime < max(each.stat().st_mtime for each in sources):
            install(["go", "build", "-o", str(program), "."], folder, "the clients in Go")
    return program


def main() -> None:
    """Fetch everything ahead of the tests, as `make test-tools` does."""
    print(f"Kafka's jars: {kafka_jars()}")
    print(f"a JVM with its classes: {' '.join(java_command('kafka.Kafka'))}")
    print(f"Kafka Streams: {streams_jars()}")
    print(f"Node client: {node_folder()}")


if __name__ == "__main__":
    main()
