"""Follows the metadata log of the controllers: drives `quorum` over the network, keeps the log on disk and applies it.

    fetch → append (in a thread, where a segment begins or ends) ┬→ fetch, which acknowledges it
          → apply what is committed                              ┘

Kafka's observers do not wait for the disk, either: what is committed does not depend on what they have.  After a loss
of power the log may end before what was applied.  A broker that starts serves clients once it has all that was
committed at its start.

`failed` is called once for what this broker cannot outlive: a disk that fails, another cluster, records that it cannot
read.  All else is tried again, with other controllers, for ever.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kbroker.cluster.client import ClientSettings, NodeClient, NodeError, UnsupportedVersionError
from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch
from kbroker.cluster.kraft.own_snapshots import OwnSnapshots
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_requests import (
    FETCH_VERSIONS,
    SNAPSHOT_VERSIONS,
    fetch_request,
    snapshot_request,
)
from kbroker.cluster.kraft.quorum_state import QuorumState
from kbroker.cluster.kraft.quorum_steps import (
    Append,
    Ask,
    Committed,
    Elected,
    Fatal,
    Fetch,
    Identity,
    Leader,
    SnapshotPiece,
    Step,
    Trouble,
    Truncate,
    Wait,
)
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.outage import Outage
from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.metadata.image import Endpoint
    from kbroker.schemas import wire

logger = logging.getLogger("kbroker.cluster")

P = ParamSpec("P")
T = TypeVar("T")


class QuorumObserver:
    """See the module.  `failed(text)` is called once, when the observer has given up."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        settings: QuorumSettings,
        directory: MetadataDirectory,
        metadata: ClusterMetadata,
        *,
        node_id: int,
        cluster_id: str | None,
        directory_id: bytes,
        clock: Clock,
        rng: random.Random,
        failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._directory = directory
        self._metadata = metadata
        self._identity = Identity(node_id, cluster_id, directory_id)
        self._clock = clock
        self._random = rng
        self._failed = failed
        self._quorum: Quorum | None = None
        self._pending: list[MetadataBatch] = []
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._on_leader: list[Callable[[], None]] = []
        self._disk = asyncio.Lock()
        self._disk_call: Awaitable[object] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._endpoint: Endpoint | None = None
        self._outage = Outage(logger, now=loop.time)
        self._snapshots = OwnSnapshots(loop, metadata, directory, settings.log, clock, self._on_disk)
        self._client = NodeClient(
            loop,
            transport,
            lambda: self._endpoint,
            ClientSettings(
                client_id=f"raft-client-{node_id}",
                negotiates=True,
                connect_seconds=settings.request_seconds,
                request_seconds=min(settings.request_seconds, settings.fetch_seconds),
                backoff_seconds=settings.backoff_seconds,
                max_backoff_seconds=settings.backoff_seconds,
            ),
            rng,
        )
        self.last_fetch_ms = -1
        self.has_given_up = False
        """What this broker knows of the cluster stays as it is."""

    @property
    def leader(self) -> Leader | None:
        """The active controller as known by now."""
        return None if self._quorum is None else self._quorum.leader

    @property
    def log_end_offset(self) -> int:
        """Where this broker's copy of the log ends."""
        return 0 if self._quorum is None else self._quorum.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it are committed; -1: not known."""
        return -1 if self._quorum is None else self._quorum.high_watermark

    @property
    def client(self) -> NodeClient:
        """The connection to the controllers, which counts what goes over it."""
        return self._client

    def on_leader(self, changed: Callable[[], None]) -> None:
        """Call `changed` when another controller becomes active, or none is."""
        self._on_leader.append(changed)

    def start(self) -> None:
        """Read the directory, then follow the controllers."""
        self._task = self._loop.create_task(self._run())

    async def first_high_watermark(self) -> None:
        """Return once the log is applied as far as it was committed when the leader first answered.

        MetadataLogError when the observer has given up."""
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Stop, and close the log."""
        task, self._task = self._task, None  # It keeps how it ended, and with that this.
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._snapshots.close()
        self._client.close()
        left = [each for each in (self._writing, self._disk_call) if each is not None]
        await asyncio.gather(*left, return_exceptions=True)
        try:
            await self._loop.run_in_executor(None, self._directory.close)
        except OSError as error:
            logger.warning("%s: %s", self._directory.path, error)
        if not self._ready.done():
            self._ready.cancel()

    async def _on_disk(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
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

    async def _run(self) -> None:
        try:
            quorum = await self._open()
            while True:
                await self._turn(quorum)
        except MetadataLogError as error:
            self._give_up(str(error))
        except OSError as error:
            self._give_up(f"{self._directory.path}: the disk of the metadata log has failed: {error}")
        except Exception as error:
            logger.exception("the metadata log cannot be followed")
            self._give_up(f"the metadata log cannot be followed: {error!r}")

    def _give_up(self, text: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(MetadataLogError(text))
            self._ready.exception()
        self.has_given_up = True
        self._failed(text)

    async def _open(self) -> Quorum:
        opened = await self._on_disk(self._directory.open)
        newest = opened.log.snapshot
        if newest is not None:
            await self._metadata.load(
                opened.snapshot, newest, f"the snapshot {newest.end_offset} in {self._directory.path}"
            )
        self._pending = opened.batches
        self._snapshots.begin()
        settings = self._settings
        self._quorum = Quorum(
            self._identity,
            opened.log,
            settings.addresses,
            settings.voters,
            self._random,
            backoff_seconds=settings.backoff_seconds,
        )
        self._quorum.voters(self._metadata.voter_endpoints(settings.listener))
        return self._quorum

    async def _turn(self, quorum: Quorum) -> None:
        """One question and what comes of it."""
        now = self._loop.time()
        ask = quorum.next(now)
        if isinstance(ask, Wait):
            await asyncio.sleep(ask.until - now)
            return
        before = quorum.leader
        try:
            answer = await self._ask(ask)
        except (NodeError, ValueError) as error:
            quorum.failed(ask, self._loop.time())
            self._trouble(f"the controller {ask.to.host}:{ask.to.port} cannot be asked: {error}")
            return
        steps = quorum.answered(ask, answer, self._loop.time())
        if not any(isinstance(step, Trouble) for step in steps):
            self._outage.over("the controllers answer again")
        try:
            await self._carry_out(quorum, ask, steps)
        finally:
            if quorum.leader != before:
                self._tell_leader(quorum)

    def _tell_leader(self, quorum: Quorum) -> None:
        leader = quorum.leader
        if leader is None:
            logger.info("the controllers have no leader in epoch %d", quorum.epoch)
        else:
            logger.info("controller %d is active in epoch %d, at %s:%d", leader.node_id, leader.epoch, *leader.endpoint)
        for changed in self._on_leader:
            changed()

    async def _ask(self, ask: Ask) -> wire.FetchResponse | wire.FetchSnapshotResponse:
        """The answer.  NodeError, ValueError."""
        if ask.to != self._endpoint:
            self._endpoint = ask.to
            self._client.disconnect()
        await self._client.connect()
        request, version = self._request(ask)
        answer: wire.FetchResponse | wire.FetchSnapshotResponse = await self._client.send(request, version)
        return answer

    def _request(self, ask: Ask) -> tuple[wire.FetchRequest | wire.FetchSnapshotRequest, int]:
        settings = self._settings
        if isinstance(ask, Fetch):
            version = self._version(ApiKey.FETCH, *FETCH_VERSIONS)
            return fetch_request(self._identity, ask.place, settings.fetch_bytes, version), version
        version = self._version(ApiKey.FETCH_SNAPSHOT, *SNAPSHOT_VERSIONS)
        size = settings.snapshot_fetch_bytes
        return snapshot_request(self._identity, ask.epoch, ask.snapshot, ask.position, size, version), version

    def _version(self, api_key: ApiKey, first: int, last: int) -> int:
        version = self._client.version_of(api_key, last)
        if version < first:
            raise UnsupportedVersionError(f"{api_key.message_name} has no version from {first} on, only {version}")
        return version

    def _trouble(self, text: str) -> None:
        self._outage.failed("%s; another one is asked", text)

    async def _carry_out(self, quorum: Quorum, ask: Ask, steps: Sequence[Step]) -> None:
        writing: asyncio.Task[None] | None = None
        try:
            for step in steps:
                match step:
                    case Append(batches):
                        self._pending += batches
                        writing = self._append(batches)
                    case Committed(high_watermark):
                        await self._apply(quorum, high_watermark)
                    case Truncate(end_offset):
                        logger.warning("records from offset %d on were not committed and are taken back", end_offset)
                        self._pending = [each for each in self._pending if each.end_offset <= end_offset]
                        await self._on_disk(self._directory.truncate, end_offset)
                    case SnapshotPiece():
                        await self._take_piece(quorum, ask, step)
                    case Elected(epoch, leader_id):
                        await self._on_disk(self._directory.elected, QuorumState(epoch, leader_id))
                    case Trouble(text):
                        self._trouble(text)
                    case Fatal(text):
                        raise MetadataLogError(text)
        finally:
            if writing is not None:
                try:
                    await asyncio.shield(writing)
                finally:
                    if writing.done():
                        self._writing = None
                    del writing  # It keeps its error, and the error this frame.
        self._served(quorum, steps)

    def _append(self, batches: tuple[MetadataBatch, ...]) -> asyncio.Task[None] | None:
        """Write batches to the log; the task that does so, where this may wait for the disk."""
        is_idle = not self._disk.locked() and self._disk_call is None
        if is_idle and self._directory.takes_at_once(batches):
            self._directory.append(batches)
            return None
        self._writing = self._loop.create_task(self._on_disk(self._directory.append, batches))
        return self._writing

    def _served(self, quorum: Quorum, steps: Sequence[Step]) -> None:
        if not any(isinstance(step, Trouble) for step in steps):
            self.last_fetch_ms = self._clock.now_ms()
        target = quorum.leader_high_watermark
        if not self._ready.done() and 0 <= target <= self._metadata.applied_offset + 1:
            self._ready.set_result(None)

    async def _apply(self, quorum: Quorum, high_watermark: int) -> None:
        count = 0
        while count < len(self._pending) and self._pending[count].end_offset <= high_watermark:
            count += 1
        batches, self._pending = self._pending[:count], self._pending[count:]
        await self._metadata.apply(batches)
        quorum.voters(self._metadata.voter_endpoints(self._settings.listener))
        self._snapshots.applied(sum(len(each.data) for each in batches))

    async def _take_piece(self, quorum: Quorum, ask: Ask, piece: SnapshotPiece) -> None:
        directory, snapshot = self._directory, piece.snapshot
        await self._on_disk(directory.write_piece, snapshot, piece.position, piece.data)
        if not piece.is_last:
            return
        try:
            batches = await self._on_disk(directory.written, snapshot)
            await self._metadata.load(
                batches, snapshot, f"the snapshot {snapshot.end_offset} of {ask.to.host}:{ask.to.port}"
            )
        except DamagedBatchesError as error:
            await self._on_disk(directory.discard, snapshot)
            quorum.snapshot_refused(ask, self._loop.time())
            self._trouble(str(error))
            return
        await self._on_disk(directory.keep, snapshot, self._metadata.applied_ms)
        await self._on_disk(directory.restart, snapshot)
        quorum.snapshot_loaded(snapshot)
        self._pending = []
        quorum.voters(self._metadata.voter_endpoints(self._settings.listener))
        self._snapshots.begin()
