"""A process whose wall clock is off: a library that is loaded before the system's own answers `clock_gettime`.

How far it is off stands in a file, which both share: it may change while the process runs, or is frozen.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (found == MAP_FAILED)
        abort();
    close(file);
    shift = found;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = (int) syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && shift != NULL)
        now->tv_sec += *shift;
    return status;
}
"""


def shift(folder: Path, seconds: int) -> None:
    """Put the clock so many seconds forward, or back, for processes with `shifted(folder, …)`."""
    with (folder / "shift").open("r+b", buffering=0) as file:
        file.write(struct.pack("=q", seconds))


def shifted(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is off by so many seconds; the library is made in `folder`."""
    source, library, place = folder / "shifted_clock.c", folder / "shifted_clock.so", folder / "shift"
    place.write_bytes(struct.pack("=q", seconds))
    if not library.exists():
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(place)}
