"""The brokers under test: started on loopback with equal settings, watched through /proc, stopped by their ids."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from bench.admin import answers
from bench.native_build import BUILD, congestion_preload

HERE = pathlib.Path(__file__).parent
KAFKA_VERSION = "4.3.1"
CLUSTER_ID = "a2Jyb2tlci1iZW5jaG1hcg"

#: What both sides are told; everything else is left at the defaults, which are the same.
EQUAL_SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "300000",
    "message.max.bytes": "8388608",
}


class BrokerError(Exception):
    """A broker did not come up."""


@dataclass(slots=True)
class Broker:
    """One running broker."""

    name: str
    host: str
    port: int
    pid: int
    version: str = ""
    ready_seconds: float = 0.0
    folder: pathlib.Path | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def stop(self) -> None:
        """End it, if it was started here, and remove its data."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """User and system time of all its threads."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(name: str, congestion: str, base: pathlib.Path | None = None) -> Broker:
    """Start `kafka` or `kbroker` on an empty directory."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=base))
    try:
        return {"kafka": _start_kafka, "kbroker": _start_kbroker}[name](folder, congestion)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start_kbroker(folder: pathlib.Path, congestion: str) -> Broker:
    port = free_port()
    settings = EQUAL_SETTINGS | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "data"),
        "metrics.listener": "none",
    }
    if congestion:
        settings["socket.tcp.congestion"] = congestion
    overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
    argv = [sys.executable, "-m", "kbroker.cli"]
    return _launch("kbroker", [*argv, "start", *overrides], folder, port, dict(os.environ), _kbroker_version())


def _kbroker_version() -> str:
    tree = pathlib.Path(__file__).parent.parent
    commit = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() or "unknown"


def kafka_jars() -> pathlib.Path:
    """The folder of Kafka's jars: $KAFKA_JARS, or fetched once with Maven."""
    given = os.environ.get("KAFKA_JARS")
    if given:
        return pathlib.Path(given)
    folder = BUILD / f"kafka-{KAFKA_VERSION}"
    done = folder / ".complete"
    if not done.exists():
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise BrokerError("Kafka needs Java 17 and Maven: apt-get install openjdk-17-jre-headless maven")
        folder.mkdir(parents=True, exist_ok=True)
        goal = "dependency:copy-dependencies"
        where = f"-DoutputDirectory={folder.resolve()}"
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), goal, "-DincludeScope=runtime", where], check=True
        )
        done.touch()
    return folder


def _start_kafka(folder: pathlib.Path, congestion: str) -> Broker:
    port, controller = free_port(), free_port()
    settings = EQUAL_SETTINGS | {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    logging = folder / "log4j2.properties"
    logging.write_text("status=error\nrootLogger.level=ERROR\n")
    classes = ["-cp", f"{kafka_jars()}/*", f"-Dlog4j2.configurationFile={logging}"]
    subprocess.run(
        ["java", *classes, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    heap = os.environ.get("KAFKA_HEAP", "1g")
    tuning = [f"-Xms{heap}", f"-Xmx{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    tuning += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
    environment = dict(os.environ)
    if congestion:
        environment |= {"LD_PRELOAD": str(congestion_preload().resolve()), "BENCH_TCP_CONGESTION": congestion}
    argv = ["java", *tuning, *classes, "kafka.Kafka", str(properties)]
    return _launch("kafka", argv, folder, port, environment, KAFKA_VERSION)


def _launch(
    name: str, argv: list[str], folder: pathlib.Path, port: int, environment: dict[str, str], version: str
) -> Broker:
    begin = time.monotonic()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=HERE.parent, start_new_session=True
        )
    while not answers("127.0.0.1", port):
        if process.poll() is not None or time.monotonic() - begin > 60:
            text = (folder / "output").read_text(errors="replace")[-2000:]
            process.kill()
            raise BrokerError(f"{name} did not start:\n{text}")
        time.sleep(0.005)
    return Broker(name, "127.0.0.1", port, process.pid, version, time.monotonic() - begin, folder, process)
