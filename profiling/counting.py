"""What one request needs of the system: system calls, allocations, copies, page faults, cache misses.

Counted by perf in the kernel, without slowing the broker noticeably: tracepoints for system calls, probes on
libpython's and libc's allocators and on libc's memcpy for pieces of COPY_BYTES and more.  That takes root and tracefs;
without them strace counts the system calls, and slows the broker while it does.  What the machine does not count (a
virtual machine often has no cache counters) is listed as such.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

TRACING = pathlib.Path("/sys/kernel/tracing")
COPY_BYTES = 1024
HARDWARE = ("cycles", "instructions", "cache-references", "cache-misses", "LLC-load-misses", "branch-misses")
SOFTWARE = ("context-switches", "page-faults")
_CALL = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$")


@dataclass(slots=True)
class Counts:
    """Counts over one load; `missing` says what could not be counted and why."""

    system_calls: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    tool: str = ""


def system_call_events() -> list[str]:
    """The tracepoints of all system calls; empty without tracefs."""
    try:
        found = sorted(path.name for path in (TRACING / "events" / "syscalls").glob("sys_enter_*"))
    except OSError:
        return []
    return [f"syscalls:{name}" for name in found]


@contextmanager
def probes() -> Iterator[dict[str, str]]:
    """Probes of our own in this kernel: perf event -> what it counts.  Removed again."""
    group = f"kbroker{os.getpid()}"
    wanted = {
        "objects": ("PyObject_Malloc", "Python objects allocated"),
        "memory": ("PyMem_Malloc", "PyMem_Malloc"),
        "malloc": ("malloc", "malloc (libc)"),
        "copy": ("memcpy", f"copies of {COPY_BYTES} bytes and more (memcpy)"),
    }
    made: dict[str, str] = {}
    control = TRACING / "uprobe_events"
    try:
        for name, (symbol, title) in wanted.items():
            place = _file_offset(symbol)
            fetched = " size=%dx:u64" if name == "copy" else ""
            try:
                _order_kernel(control, f"p:{group}/{name} {place}{fetched}")
            except OSError:
                continue
            made[f"{group}:{name}"] = title
        yield made
    finally:
        for event in made:
            _order_kernel(control, f"-:{event.replace(':', '/')}")


def _order_kernel(control: pathlib.Path, line: str) -> None:
    """One line to a control file of tracefs, which can't be sought in."""
    descriptor = os.open(control, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _file_offset(symbol: str) -> str:
    """FILE:0xOFFSET of a function of libpython or libc as it is loaded here, indirect functions resolved."""
    library = ctypes.pythonapi if symbol.startswith("Py") else ctypes.CDLL(None)
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split(None, 5)
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= address < last and path:
            return f"{path[0]}:{address - first + int(offset, 16):#x}"
    raise ValueError(f"{symbol} is not in a file")


@contextmanager
def counted(pid: int, counts: Counts) -> Iterator[None]:
    """Count the system calls, and what the hardware counts, of the process within the block into `counts`."""
    calls = system_call_events()
    if shutil.which("perf") and calls:
        with _perf_stat(pid, [*HARDWARE, *SOFTWARE, *calls], {}, counts):
            yield
    elif shutil.which("strace"):
        with _strace(pid, counts):
            yield
    else:
        counts.missing["system calls"] = "neither perf with tracefs nor strace is here"
        yield


@contextmanager
def counted_memory(pid: int, counts: Counts) -> Iterator[None]:
    """Count allocations and copies within the block.  Each costs the broker a trap, so it is slower meanwhile."""
    if not shutil.which("perf"):
        counts.missing["allocations and copies"] = "not counted (perf is not here)"
        yield
        return
    with probes() as probed:
        if probed:
            with _perf_stat(pid, [], probed, counts):
                yield
        else:
            counts.missing["allocations and copies"] = "not counted (no probes: needs root and tracefs)"
            yield


@contextmanager
def _perf_stat(pid: int, events: list[str], probed: dict[str, str], counts: Counts) -> Iterator[None]:
    """perf stat, switched on and off by its control pipe, so that its own start is not in the figures."""
    with tempfile.TemporaryDirectory(prefix="profile-count-") as folder:
        control, answer, output = (f"{folder}/{name}" for name in ("control", "answer", "output"))
        os.mkfifo(control)
        os.mkfifo(answer)
        argv = [
            "perf",
            "stat",
            "-x",
            ";",
            "-o",
            output,
            "-p",
            str(pid),
            "-D",
            "-1",
            "--control",
            f"fifo:{control},{answer}",
        ]
        if events:
            argv += ["-e", ",".join(events)]
        for event in probed:
            argv += ["-e", event]
            if event.endswith(":copy"):
                argv += ["--filter", f"size >= {COPY_BYTES}"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tell, hear = os.open(control, os.O_RDWR), os.open(answer, os.O_RDWR)
        try:
            _order(process, tell, hear, b"enable\n")
            yield
            _order(process, tell, hear, b"disable\n")
        finally:
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
            os.close(tell)
            os.close(hear)
        text = pathlib.Path(output).read_text() if pathlib.Path(output).exists() else ""
    if not text:
        raise RuntimeError(f"perf stat: {error.decode().strip()[-400:]}")
    counts.tool = "perf stat"
    read_perf_stat(text, probed, counts)


def _order(process: subprocess.Popen[bytes], tell: int, hear: int, order: bytes) -> None:
    import select

    os.write(tell, order)
    while not select.select([hear], [], [], 0.1)[0]:
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(f"perf stat: {process.stderr.read().decode().strip()[-400:]}")
    os.read(hear, 16)


def read_perf_stat(text: str, probed: dict[str, str], counts: Counts) -> None:
    """The lines of `perf stat -x ';'`."""
    for line in text.splitlines():
        value, _, name, *_ = [*line.split(";"), "", "", ""]
        if not name:
            continue
        if not value.isdigit():
            counts.missing[name] = f"{value.strip('<>')} on this machine"
        elif name.startswith("syscalls:sys_enter_"):
            if int(value):
                counts.system_calls[name.removeprefix("syscalls:sys_enter_")] = int(value)
        else:
            counts.others[probed.get(name, name)] = int(value)


@contextmanager
def _strace(pid: int, counts: Counts) -> Iterator[None]:
    with tempfile.NamedTemporaryFile("r", prefix="profile-strace-") as output:
        process = subprocess.Popen(["strace", "-f", "-c", "-q", "-o", output.name, "-p", str(pid)])
        try:
            _wait_until_traced(pid, process)
            yield
        finally:
            # As a shell's job in the background it ignores SIGINT.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        read_strace(output.read(), counts)
    counts.tool = "strace -c, which slows the broker"
    for name in HARDWARE:
        counts.missing[name] = "needs perf"


def _wait_until_traced(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    """Until the tracer has all threads of the process, or has ended: what they call before is not counted."""
    expected = f"TracerPid:\t{tracer.pid}\n"
    while tracer.poll() is None:
        if all(expected in (task / "status").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
            return
        time.sleep(0.01)


def read_strace(text: str, counts: Counts) -> None:
    """The table of `strace -c`."""
    for line in text.splitlines():
        match = _CALL.match(line)
        if match and match[2] != "total":
            counts.system_calls[match[2]] = int(match[1])


def table(counts: Counts, requests: int, memory: Counts, memory_requests: int) -> str:
    """Markdown: how many of each for one request, the rare ones added up."""
    lines = [f"System calls by {counts.tool} over {requests:,} requests, connecting included; "
             f"allocations and copies over {memory_requests:,}.", ""]  # fmt: skip
    rows = sorted(counts.system_calls.items(), key=lambda item: -item[1])
    lines += ["| system call | per request |", "|---|---:|"]
    lines += [f"| {name} | {count / requests:.3f} |" for name, count in rows if count / requests >= 0.005]
    rest = sum(count for _, count in rows if count / requests < 0.005)
    lines += [f"| others | {rest / requests:.3f} |", f"| all | {sum(counts.system_calls.values()) / requests:.3f} |"]
    lines += ["", "| besides | per request |", "|---|---:|"]
    lines += [f"| {name} | {count / requests:.3f} |" for name, count in counts.others.items()]
    lines += [f"| {name} | {count / memory_requests:.3f} |" for name, count in memory.others.items()]
    grouped: dict[str, list[str]] = {}
    for name, why in [*counts.missing.items(), *memory.missing.items()]:
        grouped.setdefault(why, []).append(name)
    lines += [f"| {', '.join(names)} | {why} |" for why, names in grouped.items()]
    return "\n".join(lines) + "\n"
