"""The rows of a task on its own machine, all of them before the replay starts: memory first, then a file.

While records are sent, Spark's JVM is idle: it neither competes for the processor nor delays the rows.  The file lies
in Spark's local directory (SPARK_LOCAL_DIRS), without a name, so it goes with the process.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO

import pyarrow as pa

from kbroker.replay.player.settings import ReplayError

MEMORY_BYTES = 64 << 20


class Spool:
    """Takes all `batches` there are, then gives them once, in order.

    memory_bytes  of batches that stay in memory; those that follow go to a file
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], memory_bytes: int = MEMORY_BYTES) -> None:
        self._kept: deque[pa.RecordBatch] = deque()
        self._file: IO[bytes] | None = None
        held, writer = 0, None
        for batch in batches:
            held += batch.nbytes
            if held <= memory_bytes:
                self._kept.append(batch)
                continue
            try:
                if writer is None:
                    # Closed once its rows have been given.
                    self._file = tempfile.TemporaryFile(prefix="kbroker-replay-", dir=local_directory())  # noqa: SIM115
                    writer = pa.ipc.new_stream(self._file, batch.schema)
                writer.write_batch(batch)
            except OSError as error:
                raise ReplayError(f"the rows to replay cannot be kept in {local_directory()}: {error}") from None
        if writer is not None:
            writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches in order, once: from memory, then from the file."""
        while self._kept:
            yield self._kept.popleft()
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                yield from pa.ipc.open_stream(file)


def local_directory() -> str:
    """Where Spark lets a task keep files."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
