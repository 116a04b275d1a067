"""An archive of the classes that Kafka loads, with which a JVM starts in two thirds of the time.

A Java program of the tests lives for seconds, of which most go into loading classes out of jars.  The JVM maps those of
an archive instead (AppCDS), which one broker writes when it ends, and goes on without one that fits no longer.  Jars
come first on the class path, in the same order: folders cannot be in an archive.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kbroker.testing.broker import answers_api_versions
from tests.compat.installing import Locked
from tests.compat.waiting import Waited, wait_for
from tests.limits import standing_still
from tests.ports import free_port

Java = Callable[..., list[str]]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
SECONDS = 240
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
"""


def shared_classes(folder: Path, java: Java) -> list[str]:
    """Options of a JVM with the jars of `folder`, whose archive is made on first use; none where Java makes none.

    `java`: the command line that runs a class with some options, without an archive.
    """
    path = folder / f"classes-{_stamp()}.jsa"
    with Locked(f"{folder.name}-classes"):
        if not path.exists():
            with standing_still(), TemporaryDirectory() as made:
                _make(Path(made), path, java)
            path.touch()  # Empty where that failed: it is not tried with each command.
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.stat().st_size else []


def _stamp() -> str:
    """Changes with the Java that is installed."""
    program = shutil.which("java")
    if program is None:
        return "none"
    real = Path(program).resolve()
    return f"{real.parent.parent.name}-{real.stat().st_mtime_ns // 1_000_000}"


def _make(folder: Path, path: Path, java: Java) -> None:
    port = free_port()
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=free_port(), folder=folder))
    words = ("format", "-t", CLUSTER_ID, "-c", str(properties))
    with suppress(subprocess.SubprocessError):
        subprocess.run(java("kafka.tools.StorageTool", *words), check=True, capture_output=True, timeout=SECONDS)
        archive = folder / "classes.jsa"
        command = java("kafka.Kafka", str(properties), options=[f"-XX:ArchiveClassesAtExit={archive}"])
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **quiet) as process:  # type: ignore[call-overload]
            try:
                with suppress(Waited):
                    wait_for(
                        lambda: process.poll() is not None or answers_api_versions(port), "Kafka to serve",
                        seconds=SECONDS,
                    )  # fmt: skip
                process.terminate()
                process.wait(SECONDS)
            finally:
                process.kill()
        if archive.exists():
            shutil.move(archive, path)
