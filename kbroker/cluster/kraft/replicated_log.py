"""This node's copy of the metadata log: batches on disk, and their records in the image as far as they are committed.

Calls of the directory run on a thread, one at a time, in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch
from kbroker.cluster.kraft.own_snapshots import OwnSnapshots

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory, Opened
    from kbroker.cluster.kraft.quorum_steps import SnapshotPiece
    from kbroker.cluster.kraft.settings import MetadataLogSettings

logger = logging.getLogger("kbroker.cluster")

P = ParamSpec("P")
T = TypeVar("T")


class ReplicatedLog:
    """See the module.  `pending`: batches that are in the log and not applied yet; `snapshots`: this node's own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: MetadataDirectory,
        metadata: ClusterMetadata,
        settings: MetadataLogSettings,
        clock: Clock,
    ) -> None:
        self._loop = loop
        self.directory = directory
        self.metadata = metadata
        self.pending: list[MetadataBatch] = []
        self._disk = asyncio.Lock()
        self._disk_call: Awaitable[object] | None = None
        self._writing: asyncio.Task[None] | None = None
        self.snapshots = OwnSnapshots(loop, metadata, directory, settings, clock, self.on_disk)

    async def on_disk(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One call of the directory, on a thread, behind those before it."""
        async with self._disk:
            if self._disk_call is not None:
                # It was left alone when its caller was cancelled.
                await asyncio.gather(self._disk_call, return_exceptions=True)
            made = self._loop.run_in_executor(None, partial(call, *args, **kwargs))
            self._disk_call = made
            try:
                return await asyncio.shield(made)
            finally:
                if made.done():
                    self._disk_call = None
                del made  # It keeps its error, and the error this frame.

    async def open(self, *, is_voter: bool = False) -> Opened:
        """Read the directory, and apply its newest snapshot.  OSError, MetadataLogError."""
        opened = await self.on_disk(self.directory.open, is_voter=is_voter)
        newest = opened.log.snapshot
        if newest is not None:
            await self.metadata.load(
                opened.snapshot, newest, f"the snapshot {newest.end_offset} in {self.directory.path}"
            )
        self.pending = opened.batches
        self.snapshots.begin()
        return opened

    def append(self, batches: tuple[MetadataBatch, ...]) -> None:
        """Write batches to the log.  Where this may wait for the disk, `written` waits for it."""
        self.pending += batches
        is_idle = not self._disk.locked() and self._disk_call is None
        if is_idle and self.directory.takes_at_once(batches):
            self.directory.append(batches)
        else:
            self._writing = self._loop.create_task(self.on_disk(self.directory.append, batches))

    async def written(self) -> None:
        """Wait for what `append` has begun.  OSError."""
        writing = self._writing
        if writing is None:
            return
        try:
            await asyncio.shield(writing)
        finally:
            if writing.done():
                self._writing = None
            del writing  # It keeps its error, and the error this frame.

    def cut(self, end_offset: int) -> None:
        """What was not committed from this offset on is not to be applied; it is still on disk."""
        logger.warning("records from offset %d on were not committed and are taken back", end_offset)
        self.pending = [each for each in self.pending if each.end_offset <= end_offset]

    async def truncate(self, end_offset: int) -> None:
        """Take away what was not committed from this offset on."""
        self.cut(end_offset)
        await self.on_disk(self.directory.truncate, end_offset)

    async def apply(self, high_watermark: int) -> Sequence[MetadataBatch]:
        """Apply what is committed by now; the batches."""
        count = 0
        while count < len(self.pending) and self.pending[count].end_offset <= high_watermark:
            count += 1
        batches, self.pending = self.pending[:count], self.pending[count:]
        await self.metadata.apply(batches)
        self.snapshots.applied(sum(len(each.data) for each in batches))
        return batches

    async def take_piece(self, piece: SnapshotPiece, where: str) -> list[MetadataBatch] | None:
        """Keep a piece of a snapshot.  With its last one the snapshot takes the place of the log: its batches.

        DamagedBatchesError for a snapshot that is none: nothing has changed then.
        """
        directory, snapshot = self.directory, piece.snapshot
        await self.on_disk(directory.write_piece, snapshot, piece.position, piece.data)
        if not piece.is_last:
            return None
        try:
            batches = await self.on_disk(directory.written, snapshot)
            await self.metadata.load(batches, snapshot, f"the snapshot {snapshot.end_offset} of {where}")
        except DamagedBatchesError:
            await self.on_disk(directory.discard, snapshot)
            raise
        await self.on_disk(directory.restart, snapshot, self.metadata.applied_ms)
        self.pending = []
        self.snapshots.begin()
        return batches

    async def close(self) -> None:
        """Let writes end, and close the files."""
        await self.snapshots.close()
        left = [each for each in (self._writing, self._disk_call) if each is not None]
        await asyncio.gather(*left, return_exceptions=True)
        try:
            await self._loop.run_in_executor(None, self.directory.close)
        except OSError as error:
            logger.warning("%s: %s", self.directory.path, error)
