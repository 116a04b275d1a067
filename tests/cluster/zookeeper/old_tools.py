"""Programs of Kafka 0.8.2.2: consumers that keep their groups in ZooKeeper, MirrorMaker and tools, each a process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.compat.tooling import old_client_jars
from tests.compat.waiting import wait_for

RELEASE = "0.8.2.2"
SESSION_MS = 4000


def command(java_class: str, *args: str) -> list[str]:
    """A command line of one of its classes."""
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *options, "-cp", f"{old_client_jars(RELEASE, 'simple')}/*", java_class, *args]


def tool(java_class: str, *args: str, stdin: str = "") -> str:
    """What a tool prints."""
    done = subprocess.run(
        command(java_class, *args), input=stdin, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{java_class} {args}:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    return done.stdout


def write_properties(path: Path, values: Mapping[str, str]) -> Path:
    """A properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def consumer_settings(zookeeper: str, group: str) -> dict[str, str]:
    """Settings of the high-level consumer that find its end quickly."""
    return {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "zookeeper.sync.time.ms": "200",
        "rebalance.backoff.ms": "500",
        "rebalance.max.retries": "20",
        "auto.commit.interval.ms": "200",
        "auto.offset.reset": "smallest",
        "refresh.leader.backoff.ms": "200",
    }


class OldProcess:
    """One that runs until it is stopped; its output goes to a file."""

    def __init__(self, folder: Path, name: str, java_class: str, *args: str) -> None:
        self.output = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        with self.output.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command(java_class, *args), stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )

    def lines(self) -> list[str]:
        """What it has printed; a line that is not whole yet is left out."""
        return self.output.read_text().split("\n")[:-1]

    def wait_lines(self, count: int) -> None:
        """Until it has printed so many."""
        wait_for(
            lambda: len(self.lines()) >= count or self._ended(), f"{count} lines of {self.output.name}", seconds=90
        )

    def _ended(self) -> bool:
        code = self._process.poll()
        assert code is None, f"{self.output.name}: ended with {code}:\n{self._errors.read_text()[-3000:]}"
        return False

    def stop(self) -> None:
        """SIGTERM: a consumer commits and leaves its group."""
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """SIGKILL: its session ends later."""
        self._process.kill()
        self._process.wait(60)


class HighLevelConsumer(OldProcess):
    """The console consumer with a group in ZooKeeper; prints values.  `beginning` is for the first of a group."""

    def __init__(self, folder: Path, name: str, zookeeper: str, group: str, topic: str, *, beginning: bool) -> None:
        file = write_properties(folder / f"{name}.properties", consumer_settings(zookeeper, group))
        super().__init__(
            folder,
            name,
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", zookeeper, "--topic", topic, "--consumer.config", str(file)),
            *(("--from-beginning",) if beginning else ()),
        )
