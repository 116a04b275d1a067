"""This node's own snapshots of the metadata log: when one is due, its writing, and the deletion of older ones.

A snapshot is due after so many bytes of records, or so much time (`metadata.log.max.record.bytes.between.snapshots`,
`metadata.log.max.snapshot.interval.ms`).  It has what is committed up to the end of a batch outside a transaction of
records: the image, the voters and the kraft.version as they are there.  They are written in slices of the loop's time;
the log goes on meanwhile.  Behind it the log begins a new segment.

What is too old or too much is deleted after each snapshot and each minute (`MetadataDirectory.clean`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot
from kbroker.metadata.image_records import image_records
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
    from kbroker.cluster.kraft.settings import MetadataLogSettings

logger = logging.getLogger("kbroker.cluster")

P = ParamSpec("P")
T = TypeVar("T")

PIECE_BYTES = 256 << 10
CLEAN_SECONDS = 60.0


class OnDisk(Protocol):
    """Runs a call of the directory on a thread."""

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """What the call gives."""


class OwnSnapshots:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metadata: ClusterMetadata,
        directory: MetadataDirectory,
        settings: MetadataLogSettings,
        clock: Clock,
        on_disk: OnDisk,
    ) -> None:
        self._loop = loop
        self._metadata = metadata
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._on_disk = on_disk
        self._bytes = 0
        self._since = clock.monotonic()
        self._written_at = clock.monotonic()
        self.last_bytes = 0
        """Of the last snapshot that this process has written; 0: none yet."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._outage = Outage(logger, now=loop.time)

    def begin(self) -> None:
        """Count from now on: there is a snapshot."""
        self._bytes, self._since = 0, self._clock.monotonic()
        if self._timer is None:
            self._timer = self._loop.call_later(CLEAN_SECONDS, self._tick)

    @property
    def age_seconds(self) -> float:
        """Since this process has written a snapshot; before the first one since it began."""
        return self._clock.monotonic() - self._written_at

    def _tick(self) -> None:
        self._timer = self._loop.call_later(CLEAN_SECONDS, self._tick)
        if self._directory.has_older_snapshots and self._is_idle:
            self._task = self._loop.create_task(self._clean())

    @property
    def _is_idle(self) -> bool:
        return self._task is None or self._task.done()

    def applied(self, size: int) -> None:
        """So many bytes of records more have been applied."""
        self._bytes += size
        settings = self._settings
        is_much = self._bytes >= settings.snapshot_bytes
        is_old = 0 < settings.snapshot_ms <= (self._clock.monotonic() - self._since) * 1000
        if self._bytes and (is_much or is_old) and self._is_idle and not self._metadata.is_transaction_open:
            self.begin()
            self._task = self._loop.create_task(self._write(*self._content()))

    def _content(self) -> tuple[SnapshotId, int, Iterator[bytes]]:
        """The id, the time and the content of a snapshot of what is applied now: more may be before it is written."""
        metadata = self._metadata
        snapshot, timestamp_ms = SnapshotId(metadata.applied_offset + 1, metadata.applied_epoch), metadata.applied_ms
        control = [each for each in (metadata.kraft_version, metadata.voters) if each is not None]
        records = image_records(metadata.recorded, list(metadata.others.values()))
        return snapshot, timestamp_ms, encoded_snapshot(records, snapshot.epoch, timestamp_ms, control)

    async def _clean(self) -> None:
        directory = self._directory
        try:
            await self._on_disk(directory.clean)
        except OSError as error:
            self._outage.failed("%s: what is old of the metadata could not be deleted: %s", directory.path, error)

    async def _write(self, snapshot: SnapshotId, timestamp_ms: int, content: Iterator[bytes]) -> None:
        directory, newest = self._directory, self._directory.newest_snapshot
        if newest is not None and newest.end_offset >= snapshot.end_offset:
            return
        pace = self._metadata.pace()
        piece, position = bytearray(), 0
        try:
            for part in content:
                piece += part
                if len(piece) >= PIECE_BYTES:
                    await self._on_disk(directory.write_piece, snapshot, position, bytes(piece))
                    position += len(piece)
                    piece.clear()
                await pace
            await self._on_disk(directory.write_piece, snapshot, position, bytes(piece))
            await self._on_disk(directory.keep_own, snapshot, timestamp_ms)
            self.last_bytes, self._written_at = position + len(piece), self._clock.monotonic()
            await self._on_disk(directory.clean)
        except OSError as error:
            self._outage.failed("%s: a snapshot of the metadata could not be written: %s", directory.path, error)
        else:
            self._outage.over("%s: snapshots of the metadata are written again", directory.path)
            logger.info("wrote a snapshot of the metadata up to offset %d", snapshot.end_offset)

    async def close(self) -> None:
        """Stop writing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task, self._task = self._task, None  # It keeps how it ended, and with that this.
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
