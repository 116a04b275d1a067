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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeClient, NodeError
from kbroker.cluster.kraft.batches import DamagedBatchesError
from kbroker.cluster.kraft.log_questions import LogQuestions
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_state import QuorumState
from kbroker.cluster.kraft.quorum_steps import (
    Append,
    Ask,
    Committed,
    Elected,
    Fatal,
    Identity,
    Leader,
    SnapshotPiece,
    Step,
    Trouble,
    Truncate,
    Wait,
)
from kbroker.cluster.kraft.replicated_log import ReplicatedLog
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
    from kbroker.cluster.kraft.settings import QuorumSettings

logger = logging.getLogger("kbroker.cluster")


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
        self._metadata = metadata
        self._identity = Identity(node_id, cluster_id, directory_id)
        self._clock = clock
        self._random = rng
        self._failed = failed
        self._quorum: Quorum | None = None
        self._log = ReplicatedLog(loop, directory, metadata, settings.log, clock)
        self._questions = LogQuestions(loop, transport, settings, self._identity, rng)
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._on_leader: list[Callable[[], None]] = []
        self._outage = Outage(logger, now=loop.time)
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
        return self._questions.client

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
        self._questions.client.close()
        await self._log.close()
        if not self._ready.done():
            self._ready.cancel()

    async def _run(self) -> None:
        try:
            quorum = await self._open()
            while True:
                await self._turn(quorum)
        except MetadataLogError as error:
            self._give_up(str(error))
        except OSError as error:
            self._give_up(f"{self._log.directory.path}: the disk of the metadata log has failed: {error}")
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
        opened = await self._log.open()
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
            answer = await self._questions.ask(ask)
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

    def _trouble(self, text: str) -> None:
        self._outage.failed("%s; another one is asked", text)

    async def _carry_out(self, quorum: Quorum, ask: Ask, steps: Sequence[Step]) -> None:
        try:
            for step in steps:
                match step:
                    case Append(batches):
                        self._log.append(batches)
                    case Committed(high_watermark):
                        await self._apply(quorum, high_watermark)
                    case Truncate(end_offset):
                        await self._log.truncate(end_offset)
                    case SnapshotPiece():
                        await self._take_piece(quorum, ask, step)
                    case Elected(epoch, leader_id):
                        await self._log.on_disk(self._log.directory.elected, QuorumState(epoch, leader_id))
                    case Trouble(text):
                        self._trouble(text)
                    case Fatal(text):
                        raise MetadataLogError(text)
        finally:
            await self._log.written()
        self._served(quorum, steps)

    def _served(self, quorum: Quorum, steps: Sequence[Step]) -> None:
        if not any(isinstance(step, Trouble) for step in steps):
            self.last_fetch_ms = self._clock.now_ms()
        target = quorum.leader_high_watermark
        if not self._ready.done() and 0 <= target <= self._metadata.applied_offset + 1:
            self._ready.set_result(None)

    async def _apply(self, quorum: Quorum, high_watermark: int) -> None:
        await self._log.apply(high_watermark)
        quorum.voters(self._metadata.voter_endpoints(self._settings.listener))

    async def _take_piece(self, quorum: Quorum, ask: Ask, piece: SnapshotPiece) -> None:
        try:
            if await self._log.take_piece(piece, f"{ask.to.host}:{ask.to.port}") is None:
                return
        except DamagedBatchesError as error:
            quorum.snapshot_refused(ask, self._loop.time())
            self._trouble(str(error))
            return
        quorum.snapshot_loaded(piece.snapshot)
        quorum.voters(self._metadata.voter_endpoints(self._settings.listener))
