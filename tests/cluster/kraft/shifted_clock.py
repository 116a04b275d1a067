"""A process whose wall clock is off: a library that is loaded before the system's own answers `clock_gettime`."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = (int) syscall(SYS_clock_gettime, clock, now);
    const char *shift = getenv("SHIFTED_CLOCK_SECONDS");
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && shift != NULL)
        now->tv_sec += atol(shift);
    return status;
}
"""


def shifted(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose clock goes wrong by so many seconds; the library is made in `folder`."""
    source, library = folder / "shifted_clock.c", folder / "shifted_clock.so"
    if not library.exists():
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "SHIFTED_CLOCK_SECONDS": str(seconds)}
