"""The machine's own limits: memory touched once, what may lie dirty, and who was the limit of a cell.

Linux throttles a writer when more than half way between `vm.dirty_background_ratio` and `vm.dirty_ratio` of the
available memory lies dirty; a cell that wrote more than that measured the disk.
"""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.brokers import Broker
from bench.cell import Result

#: From this share of a processor on, a client with one thread had no more to give.
CLIENT_BUSY = 0.9

CLIENT_WAS_LIMIT = "the client was the limit"
MACHINE_WAS_LIMIT = "the machine was the limit (all processors busy)"
DISK_WAS_LIMIT = "the disk was the limit"


def meminfo(*names: str) -> int:
    """Bytes of the named fields of /proc/meminfo, added up."""
    found = 0
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in names:
            found += int(value.split()[0]) << 10
    return found


def available_gigabytes() -> float:
    """Memory that can be had without swapping."""
    return meminfo("MemAvailable") / (1 << 30)


def gigabytes_to_touch(asked: float, share: float) -> float:
    """What was asked for, or where that is negative a share of the memory that can be had."""
    return asked if asked >= 0 else available_gigabytes() * share


def touch_memory(gigabytes: float) -> None:
    """Write to memory once in a process of its own: pages never used before cost several times the CPU."""
    code = "import mmap,sys\nm=mmap.mmap(-1,int(sys.argv[1]))\nfor i in range(0,len(m),4096): m[i]=1"
    subprocess.run([sys.executable, "-c", code, str(int(gigabytes * (1 << 30)))], check=False)


def dirty_limit_bytes() -> int:
    """From how many dirty bytes on the kernel makes writers wait."""

    def setting(name: str) -> int:
        return int((pathlib.Path("/proc/sys/vm") / name).read_text())

    memory = meminfo("MemAvailable")
    hard = setting("dirty_bytes") or memory * setting("dirty_ratio") // 100
    background = setting("dirty_background_bytes") or memory * setting("dirty_background_ratio") // 100
    return (hard + min(background, hard)) // 2


def settle(patience_seconds: float = 20.0) -> None:
    """Wait until little is left to write, so that a cell does not pay for the one before."""
    deadline = time.monotonic() + patience_seconds
    while meminfo("Dirty", "Writeback") > dirty_limit_bytes() // 10 and time.monotonic() < deadline:
        time.sleep(0.1)


class DiskWatch:
    """What a broker writes during a client's run, against what may lie dirty."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._note = ""

    @contextmanager
    def during(self, around: AbstractContextManager[object]) -> Iterator[None]:
        """Enter `around`, and watch inside it: it may free memory, and the more is free the more may lie dirty."""
        with around:
            before = self._broker.written_bytes() if self._broker.pid else 0
            dirty, limit = meminfo("Dirty", "Writeback"), dirty_limit_bytes()
            yield
            written = self._broker.written_bytes() - before if self._broker.pid else 0
        if written >= 1 << 26 and written + dirty >= limit:
            gigabytes = (written + dirty) / 1e9
            self._note = f"{DISK_WAS_LIMIT}: {gigabytes:.1f} GB written, {limit / 1e9:.1f} GB may lie dirty"

    def note(self) -> str:
        """Empty, or that the disk was the limit."""
        return self._note


def client_note(result: Result, *, threads: int = 1) -> str:
    """Empty, or that the client (with so many busy threads at most) or the machine was the limit."""
    seconds = result.get("run_s", result.get("seconds", 0.0))
    if not seconds:
        return ""
    client, broker = result.get("client_cpu_s", 0.0) / seconds, result.get("broker_cpu_s", 0.0) / seconds
    processors = os.cpu_count() or 1
    if threads == 1 and client > CLIENT_BUSY:
        return CLIENT_WAS_LIMIT
    if threads > 1 and client > CLIENT_BUSY and client > 1.5 * broker:
        return f"{CLIENT_WAS_LIMIT} ({client:.1f} processors, the broker {broker:.1f})"
    if client + broker > 0.95 * processors:
        return MACHINE_WAS_LIMIT
    return ""


def machine() -> dict[str, object]:
    """What this machine is."""
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "memory_gb": round(meminfo("MemTotal") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "dirty_limit_gb": round(dirty_limit_bytes() / 1e9, 2),
    }
