"""What a start takes, and what a broker that is ready takes while nothing happens: modules, files, calls, memory,
wake-ups of threads.

Each start is made twice: under strace with `-X importtime`, where calls, files and modules are counted until the first
request is answered, and alone, for memory and wake-ups.  Calls that only time decides on do not count.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.admin import answers
from bench.counting.counting_runs import ROOT, still_environment, tool
from kbroker.storage.directories.log_dirs import META_PROPERTIES, MetaProperties, encode_meta_properties
from kbroker.testing.ports import free_port
from tests.simulation.encrypted import tls_settings

MODULES, FILES, CALLS, PRIVATE = "modules", "files opened", "system calls", "private KiB"
PATIENCE_SECONDS = 120.0
QUIET_SECONDS = 3.0
"""For so long a broker that waits for its controllers imports and says nothing new."""
IDLE_SECONDS, SETTLE_SECONDS = 30, 5
BY_TIME = frozenset(
    {"futex", "epoll_wait", "epoll_pwait", "clock_nanosleep", "sched_yield", "restart_syscall", "poll", "select",
     "gettid", "getrusage", "clock_gettime", "rt_sigreturn", "ppoll", "accept4", "recvfrom", "madvise"}
)  # fmt: skip
"""How often these are made is up to the clock and to other processes."""
_CALL = re.compile(r"^\d+ +(\w+)\(")
_OPENED = re.compile(r"^\d+ +openat\(.*\) = \d+")
_IMPORTED = re.compile(r"^import time: +\d+ \|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """One way to start a broker; `settings` of a free port.  `is_served`: whether it comes to answer clients."""

    name: str
    settings: Callable[[int], Mapping[str, str]]
    is_served: bool = True


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started, the port of its first listener, the file of its output."""

    pid: int
    port: int
    output: Path


def _plain(port: int) -> Mapping[str, str]:
    return {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}


def _secured(port: int) -> Mapping[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{free_port()}"
    found = dict(tls_settings(listeners, "127.0.0.1"))
    found["listeners"] = f"{listeners},SSL://127.0.0.1:{free_port()}"
    return {
        **found,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _kraft(port: int) -> Mapping[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "node.id": "4",
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "controller.listener.names": "CONTROLLER",
    }


PLAIN = Start("plain", _plain)
STARTS = (PLAIN, Start("secured", _secured), Start("kraft", _kraft, is_served=False))
"""The broker of a KRaft cluster is counted while it looks for its controllers, of which none is there."""


def start_figures(start: Start) -> dict[str, float]:
    """What one start costs."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        strace = [tool("strace"), "-f", "-qq", "-e", "signal=none", "-o", str(trace)]
        with started(start, Path(folder, "counted"), strace, "-X", "importtime") as running:
            output = running.output
        lines = trace.read_text(errors="replace").splitlines()
        found: dict[str, float] = {MODULES: len(_IMPORTED.findall(output.read_text(errors="replace")))}
        found[FILES] = sum(_OPENED.match(line) is not None for line in lines)
        if start.is_served:
            found[CALLS] = sum(call is not None and call[1] not in BY_TIME for call in map(_CALL.match, lines))
    with tempfile.TemporaryDirectory() as folder, started(start, Path(folder, "alone")) as running:
        time.sleep(1.0)
        found[PRIVATE] = private_kib(running.pid)
    return found


def idle_wakeups() -> int:
    """How often the threads of a broker that has nothing to do wake in IDLE_SECONDS."""
    with tempfile.TemporaryDirectory() as folder, started(PLAIN, Path(folder, "idle")) as running:
        time.sleep(SETTLE_SECONDS)
        before = _switches(running.pid)
        time.sleep(IDLE_SECONDS)
        return _switches(running.pid) - before


@contextmanager
def started(start: Start, folder: Path, before: Sequence[str] = (), *options: str) -> Iterator[Running]:
    """A broker's process, ready, on the data of `folder`; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    output, port = folder / "output", free_port()
    values = {**start.settings(port), "log.dirs": str(folder / "data"), "metrics.listener": "none"}
    overrides = [part for name, value in values.items() for part in ("--override", f"{name}={value}")]
    if not start.is_served:
        _format(folder)
    argv = [*before, sys.executable, *options, "-P", "-m", "kbroker.cli", "start", *overrides]
    environment = {**still_environment(), "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    with output.open("wb") as stream:
        process = subprocess.Popen(argv, stdout=stream, stderr=subprocess.STDOUT, env=environment, cwd=folder)
    try:
        _wait(process, output, port if start.is_served else None)
        yield Running(process.pid, port, output)
    finally:
        _end(process)


def _format(folder: Path) -> None:
    data = folder / "data"
    data.mkdir()
    meta = MetaProperties("a-counted-cluster-id00", 4, bytes(16))
    (data / META_PROPERTIES).write_bytes(encode_meta_properties(meta))


def _wait(process: subprocess.Popen[bytes], output: Path, port: int | None) -> None:
    quiet_since = time.monotonic()
    until, size = quiet_since + PATIENCE_SECONDS, 0
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with {process.returncode}: {output.read_text()[-2000:]}")
        if port is None:
            said = output.stat().st_size
            quiet_since = quiet_since if said == size else time.monotonic()
            size = said
            if said and time.monotonic() - quiet_since > QUIET_SECONDS:
                return
        elif answers("127.0.0.1", port):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the broker is not ready after {PATIENCE_SECONDS:g} s: {output.read_text()[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    # strace does not pass the signal on: its child gets it, and strace ends with the child.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in children or [str(process.pid)]:
        os.kill(int(pid), signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()


def private_kib(pid: int) -> int:
    """What a process has of memory that it shares with no other: of what it has written, and of files that it alone
    has mapped."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty"))


def _switches(pid: int) -> int:
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        found += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("voluntary_ctxt"))
    return found
