"""What threads ask of the kernel's scheduler, and what it knows of the process.

A thread that runs may keep its processor until its slice is over, some 3 ms by default, though another one has become
ready: beside a compaction at full speed the loop's wake-ups can wait that long.  From Linux 6.12 on a thread may ask
for shorter slices; it then preempts a thread with longer ones at once.  Its share of the processor stays the same.
Threads made afterwards have slices of the usual length; older kernels take the wish and do nothing.

The threads of compaction yield their processor after each buffer (`_fast/clean/clean_files.pyx`), which costs them the
rest of their slice if other threads are ready.  Their slices are short too, so they keep about half of their share.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from pathlib import Path

LOOP_SLICE_NS = 100_000
CLEANER_SLICE_NS = 300_000

# `sched_setattr` has no wrapper in older C libraries.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK = 1
#: size, policy, flags, nice, priority, runtime (here: the slice), deadline, period
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")


def ask_for_short_slices(slice_ns: int = LOOP_SLICE_NS) -> bool:
    """Asks for this thread; whether the kernel took it.  No more than a wish: nothing depends on it."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, slice_ns, 0, 0)
    outcome: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return outcome == 0


def process_started() -> float:
    """When this process began, in seconds since the epoch: the ready line counts from there, imports included."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
