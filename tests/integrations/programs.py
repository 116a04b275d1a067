"""A program as a process of its own: what it printed, and how it is ended and started again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compat.installing import java_classes, maven_folder, python_of
from tests.compat.waiting import Waited, wait_for

HERE = Path(__file__).resolve().parent
APPS = HERE / "apps"


class Program:
    """One command line, run in `folder`; its output goes to `folder/output`, over all its starts."""

    def __init__(self, folder: Path, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.command = list(command)
        self._environ = {**os.environ, **(environ or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, which must not run."""
        assert not self.running
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    def output(self) -> str:
        """All that it printed."""
        return (self.folder / "output").read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = 240) -> None:
        """Until it has printed this; it must not end before."""

        def is_there() -> bool:
            if text in self.output():
                return True
            assert self.running, f"ended before it printed {text!r}:\n{self.output()[-3000:]}"
            return False

        try:
            wait_for(is_there, f"{text!r}", seconds=seconds, every=0.1)
        except Waited:
            raise Waited(f"{text!r} not in:\n{self.output()[-3000:]}") from None

    def stop(self, seconds: float = 240) -> int:
        """SIGTERM, and its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL: it ends as in a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def crash(self) -> None:
        """It ends as in a crash, and is started anew."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End it, if it runs."""
        if self.running:
            self.kill()


def java_program(
    project: str, java_class: str, *args: str, source: Path | None = None, temporary: Path | None = None
) -> list[str]:
    """A command line that runs a class of a Maven project's jars (`maven/<project>.xml`), or of a source of our own.

    `temporary`: where its temporary files go, of which some programs leave some."""
    jars = maven_folder(HERE / "maven" / f"{project}.xml")
    path = f"{jars}/*" if source is None else f"{java_classes(source, jars)}:{jars}/*"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
    if temporary is not None:
        options.append(f"-Djava.io.tmpdir={temporary}")
    logging = f"-Dlog4j2.configurationFile={jars / 'log4j2-INFO.properties'}"
    return ["java", *options, logging, "-cp", path, java_class, *args]


def python_program(requirements: str, *args: str) -> list[str]:
    """A command line of the Python that has the packages of `python/<requirements>.txt`."""
    return [str(python_of(HERE / "python" / f"{requirements}.txt")), *args]


def properties(path: Path, settings: Mapping[str, str]) -> str:
    """Write a file of Java's properties; its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def append(path: Path, lines: Sequence[str]) -> None:
    """Write lines at the end of a file that a program follows."""
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
