"""The brokers under test: started on loopback with equal settings, watched through /proc, stopped by their ids."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from bench import git
from bench.admin import answers
from bench.native_build import BUILD, congestion_preload
from kbroker.testing.ports import free_port

HERE = pathlib.Path(__file__).parent
KAFKA_VERSION = "4.3.1"
#: How long a broker may take to answer; much longer than it needs, because the machine may be busy.
START_SECONDS = 240
MORE_LISTENERS = "more listeners"
CLUSTER_ID = "a2Jyb2tlci1iZW5jaG1hcg"

#: What both sides are told; everything else is left at the defaults, which are the same.
EQUAL_SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "1000",
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
    argv: tuple[str, ...] = field(default=(), repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    def stop(self) -> None:
        """End it, if it was started here, and remove its data."""
        self.end()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def end(self, patience_seconds: float = 60.0) -> float:
        """End it in order and keep its data; returns the seconds that it took."""
        begin = time.monotonic()
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return time.monotonic() - begin

    def kill(self) -> None:
        """SIGKILL; its data stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def begin_again(self) -> float:
        """Start it on the data that it left; returns when the process was started (monotonic seconds)."""
        assert self.folder is not None
        begin = time.monotonic()
        self.process = _process(list(self.argv), self.folder, self.environment)
        self.pid = self.process.pid
        return begin

    def command_line(self) -> str:
        """How it was started, with names in place of this machine's folders and ports."""
        text = " ".join(self.argv).replace(str(self.folder), "$DATA").replace(f":{self.port}", ":$PORT")
        text = text.replace(
            f"{kafka_jars()}/" if self.name == "kafka" else sys.executable,
            "$JARS/" if self.name == "kafka" else "python",
        )
        return text.replace(str(HERE.parent), ".")

    def log_directory(self) -> pathlib.Path:
        """Where its partitions lie.  BrokerError for a broker that was not started here."""
        if self.folder is None:
            raise BrokerError("only for a broker that was started here")
        return self.folder / "data"

    def wait_for_deletions(self, patience_seconds: float = 30.0) -> None:
        """Until the files of deleted topics are off the disk, of a broker that was started here."""
        deadline = time.monotonic() + patience_seconds
        while self.folder is not None and time.monotonic() < deadline:
            if not any(path.name.endswith("-delete") for path in self.log_directory().iterdir()):
                return
            time.sleep(0.1)

    def written_bytes(self) -> int:
        """Bytes that it made dirty in the page cache, those of files deleted since then not taken off."""
        try:
            text = pathlib.Path(f"/proc/{self.pid}/io").read_text()
        except OSError:
            return 0
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("write_bytes:"))

    def cpu_seconds(self) -> float:
        """User and system time of all its threads."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def start(
    name: str, congestion: str, base: pathlib.Path | None = None, settings: dict[str, str] | None = None
) -> Broker:
    """Start `kafka` or `kbroker` on an empty directory; `settings` go above EQUAL_SETTINGS, on either.  MORE_LISTENERS
    among them is opened beside the plain one."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=base))
    try:
        return {"kafka": _start_kafka, "kbroker": _start_kbroker}[name](folder, congestion, settings or {})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start_kbroker(folder: pathlib.Path, congestion: str, extra: dict[str, str]) -> Broker:
    port = free_port()
    settings = {"metrics.listener": "none"} | EQUAL_SETTINGS | extra
    more = settings.pop(MORE_LISTENERS, "")
    settings |= {"listeners": f"PLAINTEXT://127.0.0.1:{port}{more}", "log.dirs": str(folder / "data")}
    if congestion:
        settings["socket.tcp.congestion"] = congestion
    overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
    argv = [sys.executable, "-m", "kbroker.cli"]
    return _launch("kbroker", [*argv, "start", *overrides], folder, port, dict(os.environ), _kbroker_version())


def _kbroker_version() -> str:
    return git.said("describe", "--always", "--dirty") or "unknown"


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


def _start_kafka(folder: pathlib.Path, congestion: str, extra: dict[str, str]) -> Broker:
    port, controller = free_port(), free_port()
    extra = dict(extra)
    more = extra.pop(MORE_LISTENERS, "")
    settings = (
        EQUAL_SETTINGS
        | extra
        | {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}{more},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
    )
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
    process = _process(argv, folder, environment)
    while not answers("127.0.0.1", port):
        if process.poll() is not None or time.monotonic() - begin > START_SECONDS:
            text = (folder / "output").read_text(errors="replace")[-2000:]
            process.kill()
            raise BrokerError(f"{name} did not start:\n{text}")
        time.sleep(0.005)
    ready = time.monotonic() - begin
    return Broker(name, "127.0.0.1", port, process.pid, version, ready, folder, process, tuple(argv), environment)


def _process(argv: list[str], folder: pathlib.Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=HERE.parent, start_new_session=True
        )
