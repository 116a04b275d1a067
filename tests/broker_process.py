"""A broker as users run it: its own process, started by `kbroker start` on loopback and stopped by signals.

    broker = BrokerProcess(tmp_path, {"num.partitions": "3"})
    broker.start()                  # returns once ApiVersions is answered
    broker.bootstrap                # "127.0.0.1:port", the same over restarts
    broker.stop() / broker.kill()   # SIGTERM / SIGKILL, by process id; the exit status
    broker.restart()                # on the same directory and port

Everything lies under the directory given: `data` (log.dirs) and `broker.log` (what the process printed, all starts).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.ports import free_port

START_SECONDS = 30.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.01
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerError(Exception):
    """A broker that did not start or stop; carries what it printed."""


def answers_api_versions(port: int) -> bool:
    """Whether a broker on this loopback port answers ApiVersions v0 without an error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
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


class BrokerProcess:
    """One kbroker process and its directory."""

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.port = port or free_port()
        self.metrics_port = free_port()
        self.overrides = dict(overrides or {})
        self.environ = dict(environ or {})
        self.prefix: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
            "metrics.listener": f"http://127.0.0.1:{self.metrics_port}",
            **self.overrides,
        }
        command = [*self.prefix, sys.executable, "-m", "kbroker.cli", "start"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def spawn(self) -> None:
        """Starts the process without waiting for it."""
        assert not self.running, "the broker is running"
        # A developer's own KBROKER_ settings must not reach the broker under test.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_")}
        # Users' starts find compiled modules; a start that compiles them anew takes several times as long.
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environ, **self.environ},
            )

    def start(self) -> BrokerProcess:
        """Starts the process and waits until it answers.  `BrokerError` with its output when it does not."""
        self.spawn()
        deadline = time.monotonic() + START_SECONDS
        while not answers_api_versions(self.port):
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

    def restart(self, *, kill: bool = False) -> BrokerProcess:
        """Ends the process and starts it again on the same directory and port."""
        self.kill() if kill else self.stop()
        return self.start()

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """The exit status of a process that ends on its own."""
        assert self.process is not None, "the broker was not started"
        status = self.process.wait(timeout)
        self.process = None
        return status

    def log_sizes(self, name: str) -> list[int]:
        """Bytes of each log file in a partition's directory, in order; files that go away meanwhile are left out."""
        sizes = []
        for path in sorted((self.data_dir / name).glob("*.log")):
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return sizes

    def output(self) -> str:
        """What the process has printed, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None, "the broker is not running"
        self.process.send_signal(number)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait()
            raise BrokerError(
                f"the broker did not end within {STOP_SECONDS:.0f} s of {number.name}:\n{self.output()}"
            ) from None
