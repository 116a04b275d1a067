"""A broker as users run it: its own process, started by `kbroker start` on loopback and ended by signals.

    broker = KafkaBroker(settings={"num.partitions": "3"})
    broker.start()                       # returns once ApiVersions is answered
    broker.bootstrap                     # "127.0.0.1:port", the same over restarts
    broker.stop() / broker.kill()        # SIGTERM / SIGKILL by process id; the exit status
    broker.restart()                     # on the same directory and port
    broker.pause() / broker.resume()     # SIGSTOP / SIGCONT: a broker that hangs
    broker.fill_disk() / broker.free_disk()   # records are refused as on a full disk

Everything lies under one directory: `data` (log.dirs) and `broker.log` (what the process printed, all starts).
Without a directory of the caller's it is a temporary one, which goes with `close`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kbroker.testing.ports import free_port
from kbroker.testing.security import ADMIN, Security

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Self

    from confluent_kafka.admin import AdminClient

# What ends a test whose broker hangs: on a busy machine with a slow disk a start or a stop takes many seconds.
START_SECONDS = 120.0
STOP_SECONDS = 120.0
POLL_SECONDS = 0.01
RESERVE = "kbroker.disk.reserve.bytes"
MORE_THAN_ANY_DISK = 1 << 62
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerError(Exception):
    """A broker that did not start or stop, or refused a change; carries what it printed."""


def answers_api_versions(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a broker on this loopback port answers ApiVersions v0 without an error."""
    try:
        plain = socket.create_connection(("127.0.0.1", port), timeout=2)
        with plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(_API_VERSIONS_V0)
            head = b""
            while len(head) < 10:
                chunk = connection.recv(10 - len(head))
                if not chunk:
                    return False
                head += chunk
    except OSError:
        return False
    _size, correlation_id, error = struct.unpack(">iih", head)
    return bool(correlation_id == 1 and error == 0)


class KafkaBroker:
    """One kbroker process and its directory; a context manager that starts and closes it.

    `settings` are Kafka's broker settings; `environ` is added to the process's environment.  With `security` the
    broker asks for it (`kbroker.testing.security`), and clients take `client_settings`.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        port: int | None = None,
        security: Security | None = None,
    ) -> None:
        self.security = security
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-") if directory is None else directory)
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "broker.log"
        self.port = port or free_port()
        self.metrics_port = free_port()
        self.overrides = dict(settings or {})
        self.environ = dict(environ or {})
        self.prefix: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """What clients take for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """What a client of that user takes: confluent-kafka's settings, `bootstrap.servers` among them."""
        security = {} if self.security is None else self.security.client_settings(self.tls_dir, user)
        return {"bootstrap.servers": self.bootstrap, **security}

    @property
    def tls_dir(self) -> Path:
        """Where the broker's key and the authority's certificate lie, with a security that encrypts."""
        shared = None if self.security is None else self.security.directory
        return shared or self.directory / "tls"

    @property
    def metrics_url(self) -> str:
        """Where `/metrics`, `/healthz` and `/readyz` are."""
        return f"http://127.0.0.1:{self.metrics_port}"

    @property
    def pid(self) -> int:
        """The id of the process, which runs."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    # The process

    def command(self) -> list[str]:
        """The command line of a start."""
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
            "metrics.listener": f"http://127.0.0.1:{self.metrics_port}",
            **({} if self.security is None else self.security.settings(self.tls_dir, self.port)),
            **self.overrides,
        }
        # A test runs in a project's folder, whose modules are none of the broker's.
        command = [*self.prefix, sys.executable, "-P", "-m", "kbroker.cli", "start"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        assert not self.running, "the broker is running"
        # A developer's own KBROKER_ settings must not reach the broker under test.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_")}
        # Users' starts find compiled modules; a start that compiles them anew takes several times as long.
        for name in ("PYTHONDONTWRITEBYTECODE", "NOTIFY_SOCKET"):  # The tests may be a service themselves.
            environ.pop(name, None)
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environ, **self.environ},
            )

    def start(self) -> Self:
        """Start the process and wait until it answers.  `BrokerError` with its output when it does not."""
        self.spawn()
        deadline = time.monotonic() + START_SECONDS
        tls = self.security.context(self.tls_dir) if self.security is not None and self.security.encrypts else None
        while not answers_api_versions(self.port, tls):
            if not self.running:
                status = self.process.returncode if self.process else None
                self.process = None
                raise BrokerError(f"the broker ended with status {status}:\n{self.output()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"the broker did not answer within {START_SECONDS:.0f} s:\n{self.output()}")
            time.sleep(POLL_SECONDS)
        return self

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL, and the exit status (-9)."""
        return self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> Self:
        """End the process and start it again on the same directory and port."""
        self.kill() if kill else self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """The exit status of a process that ends on its own."""
        assert self.process is not None, "the broker was not started"
        status = self.process.wait(timeout)
        self.process = None
        return status

    def close(self) -> None:
        """End the process if it runs, and remove a temporary directory."""
        if self.running:
            # What it would still write goes with the directory.
            self.kill() if self._temporary else self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None, "the broker is not running"
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
            if number is not signal.SIGKILL:
                self.process.send_signal(signal.SIGCONT)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait()
            raise BrokerError(
                f"the broker did not end within {STOP_SECONDS:.0f} s of {number.name}:\n{self.output()}"
            ) from None

    # What lies on the disk

    def output(self) -> str:
        """What the process has printed, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_sizes(self, name: str) -> list[int]:
        """Bytes of each log file in a partition's directory, in order; files that go away meanwhile are left out."""
        sizes = []
        for path in sorted((self.data_dir / name).glob("*.log")):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return sizes

    # What tests change

    @property
    def admin(self) -> AdminClient:
        """An admin client of this broker (confluent-kafka), one for all calls."""
        if self._admin is None:
            client: AdminClient = _admin_api().AdminClient({**self.client_settings(), "log_level": "0"})
            self._admin = client
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic, which may be used at once; its name.  KafkaException when the broker refuses it."""
        topic = _admin_api().NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        self.admin.create_topics([topic])[name].result()
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic.  KafkaException when the broker refuses it."""
        self.admin.delete_topics([name])[name].result()

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """(first offset, end offset) of each partition of a topic.  KafkaException when it is not there."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        found = self.admin.list_topics(topic, timeout=START_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        consumer = Consumer({**self.client_settings(), "group.id": "kbroker-testing", "log_level": 0})
        try:
            return {
                index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=START_SECONDS)
                for index in found.partitions
            }
        finally:
            consumer.close()

    def set(self, name: str, value: str | None) -> None:
        """Change a setting of the running broker; None takes a change back.  KafkaException when it is refused."""
        api = _admin_api()
        operation = api.AlterConfigOpType.DELETE if value is None else api.AlterConfigOpType.SET
        entry = api.ConfigEntry(name, value, incremental_operation=operation)
        (node_id,) = self.admin.list_topics(timeout=START_SECONDS).brokers
        resource = api.ConfigResource(api.ResourceType.BROKER, str(node_id), incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def fill_disk(self) -> None:
        """Refuse records with KAFKA_STORAGE_ERROR, as on a disk that is full; reads and deletions go on."""
        self.set(RESERVE, str(MORE_THAN_ANY_DISK))

    def free_disk(self) -> None:
        """Take `fill_disk` back."""
        self.set(RESERVE, None)


def _admin_api() -> ModuleType:
    """`confluent_kafka.admin`, whose type hints do not export its own names."""
    import confluent_kafka.admin

    return confluent_kafka.admin
