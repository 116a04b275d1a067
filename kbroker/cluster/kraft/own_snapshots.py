"""This broker's own snapshots of the metadata log: when one is due, and its writing.

A snapshot is due after so many bytes of records, or so much time (`metadata.log.max.record.bytes.between.snapshots`,
`metadata.log.max.snapshot.interval.ms`).  It is made of the image, in slices of the loop's time; the log goes on
meanwhile.  Behind it the log begins a new segment, and what is too old or too much is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
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
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger, now=loop.time)

    def begin(self) -> None:
        """Count from now on: there is a snapshot."""
        self._bytes, self._since = 0, self._clock.monotonic()

    def applied(self, size: int) -> None:
        """So many bytes of records more have been applied."""
        self._bytes += size
        settings = self._settings
        is_much = self._bytes >= settings.snapshot_bytes
        is_old = 0 < settings.snapshot_ms <= (self._clock.monotonic() - self._since) * 1000
        if self._bytes and (is_much or is_old) and (self._task is None or self._task.done()):
            self.begin()
            self._task = self._loop.create_task(self._write())

    async def _write(self) -> None:
        metadata, directory = self._metadata, self._directory
        snapshot = SnapshotId(metadata.applied_offset + 1, metadata.applied_epoch)
        newest = directory.newest_snapshot
        if newest is not None and newest.end_offset >= snapshot.end_offset:
            return
        timestamp_ms = metadata.applied_ms
        control = [each for each in (metadata.kraft_version, metadata.voters) if each is not None]
        records = image_records(metadata.recorded, list(metadata.others.values()))
        pace = metadata.pace()
        piece, position = bytearray(), 0
        try:
            for part in encoded_snapshot(records, snapshot.epoch, timestamp_ms, control):
                piece += part
                if len(piece) >= PIECE_BYTES:
                    await self._on_disk(directory.write_piece, snapshot, position, bytes(piece))
                    position += len(piece)
                    piece.clear()
                await pace
            await self._on_disk(directory.write_piece, snapshot, position, bytes(piece))
            await self._on_disk(directory.keep_own, snapshot, timestamp_ms)
            await self._on_disk(directory.clean)
        except OSError as error:
            self._outage.failed("%s: a snapshot of the metadata could not be written: %s", directory.path, error)
        else:
            self._outage.over("%s: snapshots of the metadata are written again", directory.path)
            logger.info("wrote a snapshot of the metadata up to offset %d", snapshot.end_offset)

    async def close(self) -> None:
        """Stop writing."""
        task, self._task = self._task, None  # It keeps how it ended, and with that this.
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
