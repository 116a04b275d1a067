"""Memory that was just used, for what a cell writes.

Virtual machines give free memory back to their host, from two seconds after it became free on, and pay for each page
that they take again: writing into such a page costs up to twelve times what writing into a page does.  Which of two
brokers pays more of that is chance, and none of it is their doing.  So a process of its own keeps memory in use and
frees it right before a client's run: the system hands out first what became free last.

The system also hands out the smallest piece that suffices first.  What lies in pieces of 1 MB, which only large writes
take, is in use only if the process takes more than there is in pieces at all (`generous`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.limits import available_gigabytes

#: About what a run of 2 s writes.  More does harm: the machine gives back what is not used, a gigabyte at a time,
#: during the run.  With 2 GB 1 MB batches took a sixth less CPU than with 6 and than with none.
GIGABYTES = 2.0
#: For runs that write in pieces of 1 MB or read ahead into such, so many times as much.
GENEROUS = 1.75
#: Never more than this share of what can be had.
MOST_OF_AVAILABLE = 0.3
CHUNK_BYTES = 64 << 20

# Reads a number of chunks from each line, holds so many, and answers with a line.
_KEEPER = """
import mmap, sys
held = []
for line in sys.stdin:
    wanted = int(line)
    while len(held) > wanted:
        held.pop().close()
    while len(held) < wanted:
        chunk = mmap.mmap(-1, int(sys.argv[1]))
        for at in range(0, len(chunk), 4096):
            chunk[at] = 1
        held.append(chunk)
    print(flush=True)
"""


class HotMemory:
    """Memory kept in use between runs.  Entered, it starts its process; left, it ends it.

    `gigabytes` less than 0: what suits the cells and this machine.  0: none is kept.
    """

    def __init__(self, gigabytes: float = -1.0) -> None:
        if gigabytes < 0:
            gigabytes = min(GIGABYTES, available_gigabytes() * MOST_OF_AVAILABLE)
        self._chunks = round(gigabytes * (1 << 30) / CHUNK_BYTES)
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> HotMemory:
        if self._chunks:
            self._keeper = subprocess.Popen(
                [sys.executable, "-c", _KEEPER, str(CHUNK_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.kill()
            with suppress(BrokenPipeError), keeper:  # what could not be written to one that had ended is tried again
                pass

    @contextmanager
    def lent(self, *, generous: bool = False) -> Iterator[None]:
        """All of it is free inside, freed a moment ago.  Taken again at the end, while most of it is still at hand."""
        self._hold(round(self._chunks * GENEROUS) if generous else self._chunks)
        self._hold(0)
        yield
        self._hold(self._chunks * 2 // 3)

    def _hold(self, chunks: int) -> None:
        """Returns when so many chunks are in use; an OSError where the system did not have them."""
        if self._keeper is None:
            return
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        try:
            self._keeper.stdin.write(f"{chunks}\n")
            if self._keeper.stdout.readline():
                return
        except BrokenPipeError:
            pass
        raise OSError("the process that keeps memory in use has ended")
