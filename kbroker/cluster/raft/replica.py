"""A node with the controller role in its quorum: drives the voters' machine over the network, the disk and the clock.

    what others ask, answers, time  →  machine  →  steps, one behind the other  →  answers, requests, the image

Steps of the machine and writes of the log go through one queue in the order in which they were decided; each is done,
and durable, before the next one begins.  An answer leaves once the epoch and the vote are on disk that it stands on
(`persisted`), and the next fetch once the log is that it acknowledges (`settled`).

While the node follows, or knows no leader, it asks for the log as an observer does (`kraft.quorum`), and syncs it
before it asks again.  While it leads, `leading` appends.  `failed` is called once for what the node cannot outlive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeError
from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch
from kbroker.cluster.kraft.log_questions import LogQuestions
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_state import QuorumState
from kbroker.cluster.kraft.quorum_steps import (
    NO_LEADER,
    Append,
    Ask,
    Committed,
    Fatal,
    Identity,
    SnapshotId,
    SnapshotPiece,
    Trouble,
    Truncate,
    Wait,
)
from kbroker.cluster.kraft.quorum_steps import Step as FollowerStep
from kbroker.cluster.kraft.replicated_log import ReplicatedLog
from kbroker.cluster.raft.election import Answer, Election, RaftState, ReplicaKey, Request
from kbroker.cluster.raft.leading import Leading, leader_change
from kbroker.cluster.raft.log_tail import LogTail
from kbroker.cluster.raft.machine import Lead, Persist, RaftMachine, RaftStep, Send, StopLeading
from kbroker.cluster.raft.peers import Peers
from kbroker.cluster.raft.quorum_stats import QuorumStats
from kbroker.cluster.raft.voter_set import DYNAMIC, VoterHistory, VoterSet
from kbroker.errors import NotControllerError
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.outage import Outage
from kbroker.types import ZERO_UUID
from kbroker.waiting import Changes

if TYPE_CHECKING:
    import random

    from kbroker.clock import Clock
    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.cluster.raft.election import RaftTiming
    from kbroker.metadata.image import Endpoint

logger = logging.getLogger("kbroker.cluster")

SLOW_FETCHES = 1.5
"""A leader whose disk takes so many fetch timeouts for a write resigns."""


@dataclass(frozen=True, slots=True)
class _Write:
    """Have batches in the log, on disk.  `is_own`: this node leads and has made them."""

    batches: tuple[MetadataBatch, ...]
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class _Cut:
    """Take away what was not committed from an offset on."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Keep a piece of a snapshot, which `ask` was for."""

    ask: Ask
    piece: SnapshotPiece


_Step = RaftStep | _Write | _Cut | _Piece


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """What a replica stands on.  `endpoints`: where this node listens for the quorum, by the names of its listeners."""

    loop: asyncio.AbstractEventLoop
    transport: Transport
    settings: QuorumSettings
    timing: RaftTiming
    directory: MetadataDirectory
    metadata: ClusterMetadata
    clock: Clock
    rng: random.Random
    endpoints: Mapping[str, Endpoint]


class RaftReplica:
    """See the module.  `open` comes first, then `start`; `close` ends it.

    `changes` is announced when the log grows, the high watermark or the image moves, and when the leader changes.
    """

    def __init__(self, parts: ReplicaParts, me: ReplicaKey, cluster_id: str, failed: Callable[[str], None]) -> None:
        self.parts = parts
        self.me = me
        self.cluster_id = cluster_id
        self._failed = failed
        self._loop = parts.loop
        settings = parts.settings
        self.log = ReplicatedLog(parts.loop, parts.directory, parts.metadata, settings.log, parts.clock)
        identity = self._identity = Identity(me.node_id, cluster_id, me.directory_id, may_lead=True)
        self.questions = LogQuestions(parts.loop, parts.transport, settings, identity, parts.rng)
        self.peers = Peers(
            parts.loop,
            parts.transport,
            settings,
            me,
            cluster_id,
            parts.endpoints,
            parts.rng,
            self.endpoint_of,
            self.learnt,
        )
        self.history = VoterHistory(VoterSet.static(settings.voters, settings.listener))
        self.changes = Changes()
        self.stats = QuorumStats(parts.loop.time)
        self.tail = LogTail()
        self.leading: Leading | None = None
        self.applied_end = 0
        """The offset behind the last batch in the image."""
        self._learnt: dict[int, Endpoint] = {}
        self._steps: deque[_Step] = deque()
        self._decided = self._done = self._persist_mark = 0
        self._runner: asyncio.Task[None] | None = None
        self._applier: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked_in: tuple[RaftState, int] | None = None
        self._on_lead: list[Callable[[Leading], None]] = []
        self._on_end: list[Callable[[], None]] = []
        self._on_leader: list[Callable[[], None]] = []
        self._told: tuple[int, int] = (0, NO_LEADER)
        self._state = RaftState.UNATTACHED
        self._outage = Outage(logger, now=parts.loop.time)
        self.is_over = False
        """Whether it has ended, or met what it cannot outlive."""
        self._followed_ms = -1

    # -- begin and end ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what is on disk.  OSError, MetadataLogError where this node may not vote with it."""
        opened = await self.log.open(is_voter=True)
        self.history.begin(opened.snapshot)
        for batch in opened.batches:
            self.history.take(batch)
        self.tail.put(opened.batches)
        newest = opened.log.snapshot
        self.applied_end = 0 if newest is None else newest.end_offset
        settings = self.parts.settings
        own = set(self.parts.endpoints.values())
        self.quorum = Quorum(
            self._identity,
            opened.log,
            [each for each in settings.addresses if each not in own],
            self._others(settings.voters),
            self.parts.rng,
            backoff_seconds=settings.backoff_seconds,
        )
        self._look_at_voters()
        state = opened.state
        voted = None if state.voted_id < 0 else ReplicaKey(state.voted_id, state.voted_directory)
        kept = Election(state.epoch, state.leader_id, voted)
        self.machine = RaftMachine(
            self.me, self.quorum, self.history.last.voters, kept, self.parts.timing, self.parts.rng, self._begins
        )
        self.machine.voters_changed(self.history.last.voters, self._loop.time(), is_leaving=self._is_leaving())

    def start(self) -> None:
        """Take part in the quorum."""
        self.take(self.machine.start(self._loop.time()))
        self._follower = self._loop.create_task(self._follow())

    async def leave(self) -> None:
        """Resign, if this node leads, and wait for another voter to be elected; others are still answered."""
        if self.machine.progress is None:
            return
        self.take(self.machine.resign(self._loop.time()))
        if any(each != self.me.node_id for each in self.machine.voters.keys):
            epoch = self.machine.epoch
            await self.changes.wait_until(lambda: self.machine.epoch != epoch or self.is_over, self.RESIGN_SECONDS)

    async def close(self) -> None:
        """Stop, and close the log."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [each for each in (self._follower, self._runner, self._applier) if each is not None]
        self._follower = self._runner = self._applier = None  # Each keeps how it ended, and with that this.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.leading is not None:
            self.leading.end()
        await self.peers.close()
        self.questions.client.close()
        await self.log.close()

    RESIGN_SECONDS = 0.25
    """How long a stop waits for another voter to be elected."""

    def _give_up(self, text: str) -> None:
        if not self.is_over:
            self.is_over = True
            if self.leading is not None:
                self.leading.end()
            self.changes.announce()
            self._failed(text)

    # -- the quorum ---------------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        """The node that leads; NO_LEADER: none is known."""
        return self.machine.leader_id

    def voter_ids(self) -> list[int]:
        """The nodes that vote by the log's end: no broker has the id of one."""
        return list(self.history.last.by_id)

    @property
    def last_fetch_ms(self) -> int:
        """When the leader answered last, in ms since 1970: now, where this node leads; -1: never."""
        return self._followed_ms if self.machine.progress is None else self.parts.clock.now_ms()

    @property
    def high_watermark(self) -> int:
        """Records below it are committed; -1: not known."""
        return self.quorum.high_watermark

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Where a node of the quorum listens: this one, or another by the log, the settings or what others say."""
        if node_id == self.me.node_id:
            return self.parts.endpoints.get(self.parts.settings.listener)
        known = self.history.last.endpoints(self.parts.settings.listener).get(node_id)
        return known or self._learnt.get(node_id) or self.parts.settings.voters.get(node_id)

    def learnt(self, endpoints: Mapping[int, Endpoint]) -> None:
        """Another node says where nodes listen."""
        others = self._others(endpoints)
        self._learnt |= others
        self.quorum.voters(others)

    def _others(self, endpoints: Mapping[int, Endpoint]) -> dict[int, Endpoint]:
        return {node_id: at for node_id, at in endpoints.items() if node_id != self.me.node_id}

    def on_lead(self, begun: Callable[[Leading], None], ended: Callable[[], None]) -> None:
        """Call `begun` when this node is the active controller, with the image of all before, and `ended` behind it."""
        self._on_lead.append(begun)
        self._on_end.append(ended)

    def on_leader(self, changed: Callable[[], None]) -> None:
        """Call `changed` when another node leads, or none does."""
        self._on_leader.append(changed)

    def _begins(self) -> tuple[int, SnapshotId | None]:
        base, directory = self.quorum.base, self.parts.directory
        start = directory.start_offset
        if base is not None and base.end_offset >= start:
            return base.end_offset, base
        return (start, directory.oldest_snapshot) if start else (0, None)

    def _look_at_voters(self) -> None:
        self.quorum.voters(self._others(self.history.last.endpoints(self.parts.settings.listener)))

    def _voters_changed(self) -> None:
        self._look_at_voters()
        now = self._loop.time()
        self.take(self.machine.voters_changed(self.history.last.voters, now, is_leaving=self._is_leaving()))

    def _is_leaving(self) -> bool:
        """Whether the log's end removes this voter, and is not known to be committed."""
        history = self.history
        has_removed = not history.last.voters.has(self.me) and history.before_last.voters.has(self.me)
        return has_removed and history.last_offset >= self.quorum.high_watermark

    # -- steps --------------------------------------------------------------------------------------------------------

    def take(self, steps: Sequence[_Step]) -> None:
        """Have steps carried out, in order; the machine has just made them."""
        for step in steps:
            self._steps.append(step)
            self._decided += 1
            if isinstance(step, Persist):
                self._persist_mark = self._decided
        if self.leading is not None and self.machine.progress is None:
            self._end_lead()
        if self._steps and self._runner is None and not self.is_over:
            self._runner = self._loop.create_task(self._run_steps())
        self._arm()
        self._look_at_leader()

    async def settled(self) -> None:
        """Return once all that was decided by now is carried out."""
        await self._until(self._decided)

    async def persisted(self) -> None:
        """Return once the epoch and the vote of now are on disk; what is being written of the log is not waited for."""
        await self._until(self._persist_mark)

    async def _until(self, mark: int) -> None:
        if self._done < mark and not self.is_over:
            await self.changes.wait_until(lambda: self._done >= mark or self.is_over)
        self.check()

    def check(self) -> None:
        """NotControllerError where this replica has ended: nothing that it would answer stands on a disk any more."""
        if self.is_over:
            raise NotControllerError("This controller has ended.")

    async def _run_steps(self) -> None:
        try:
            while self._steps:
                await self._carry_out(self._steps.popleft())
                self._done += 1
                self.changes.announce()
        except OSError as error:
            self._give_up(f"{self.parts.directory.path}: the disk of the metadata log has failed: {error}")
        except MetadataLogError as error:
            self._give_up(str(error))
        except Exception as error:
            logger.exception("the metadata log cannot be kept")
            self._give_up(f"the metadata log cannot be kept: {error!r}")
        finally:
            self._runner = None

    async def _carry_out(self, step: _Step) -> None:
        directory = self.parts.directory
        match step:
            case Persist(election):
                await self.log.on_disk(directory.elected, _state_of(election), self._static_voters())
            case Send(request):
                answered = partial(self._answered, request)
                self.peers.send(request, answered, partial(self._unanswered, request))
            case Lead(epoch, granting):
                self._begin_lead(epoch, granting)
            case Committed(high_watermark):
                self._commit(high_watermark)
            case _Write(batches, is_own):
                watch = self._loop.call_later(SLOW_FETCHES * self.parts.timing.fetch, self._too_slow, batches[-1].epoch)
                try:
                    await self.log.on_disk(directory.append_durably, batches)
                finally:
                    watch.cancel()
                if is_own and self.leading is not None and self.leading.epoch == batches[-1].epoch:
                    self.take(self.machine.synced(batches[-1].end_offset))
                    self.leading.written()
            case _Cut(end_offset):
                await self.log.on_disk(directory.truncate, end_offset)
            case _Piece(ask, piece):
                await self._take_piece(ask, piece)
            case StopLeading():
                pass  # `take` has ended it already.

    def _static_voters(self) -> tuple[int, ...] | None:
        return None if self.history.kraft_version >= DYNAMIC else tuple(self.history.last.by_id)

    def _answered(self, request: Request, answer: Answer) -> None:
        if not self.is_over:
            self.take(self.machine.answered(request, answer, self._loop.time()))

    def _unanswered(self, request: Request) -> None:
        if not self.is_over:
            self.take(self.machine.failed(request, self._loop.time()))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.machine.deadline()
        if not self.is_over and deadline < float("inf"):
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self.take(self.machine.tick(self._loop.time()))
        except Exception as error:
            logger.exception("the quorum's time cannot be kept")
            self._give_up(f"the quorum's time cannot be kept: {error!r}")

    def _look_at_leader(self) -> None:
        """Whom this node asks, and what it shows, where the leader or its own state has changed."""
        if self._asked_in is not None and self._asked_in != (self.machine.state, self.machine.epoch):
            self._asked_in = None
            self.questions.client.disconnect()
        state = self.machine.state
        self.stats.seen(state, self.machine.epoch, self.machine.leader_id)
        if state is not self._state:
            self._state = state
            self.changes.announce()
        now = self.machine.epoch, self.machine.leader_id
        if now == self._told:
            return
        self._told = now
        if now[1] == NO_LEADER:
            logger.info("the controllers have no leader in epoch %d", now[0])
        else:
            logger.info("controller %d leads in epoch %d", now[1], now[0])
        self.changes.announce()
        for changed in self._on_leader:
            changed()

    # -- leading ------------------------------------------------------------------------------------------------------

    def _begin_lead(self, epoch: int, granting: Sequence[int]) -> None:
        if self.machine.progress is None or self.machine.epoch != epoch:
            return  # It is over already.
        leading = self.leading = Leading(
            epoch,
            self.quorum.end_offset,
            self._write_own,
            self._loop.call_soon,
            lambda: self.applied_end,
            self._resign,
            self.changes,
            self.parts.clock.now_ms,
        )
        is_first = self.history.kraft_version >= DYNAMIC and not self.history.is_of_log and self.quorum.end_offset == 0
        voters = self.history.last
        first = self.history.kraft_version if is_first else None
        leading.append_control(leader_change(self.me.node_id, voters, granting, first))

    def _write_own(self, batches: Sequence[MetadataBatch]) -> None:
        """Take batches of this leader into the log, in the turn in which they are made."""
        has_voters = False
        for batch in batches:
            self.machine.appended(batch.base_offset, batch.end_offset)
            self.stats.appended(batch.base_offset, batch.end_offset, self.parts.clock.now_ms())
            has_voters |= self.history.take(batch)
        self.log.pending += batches
        self.tail.put(batches)
        self.take([_Write(tuple(batches), is_own=True)])
        if has_voters:
            self._voters_changed()
        self.changes.announce()

    def _resign(self, reason: str) -> None:
        logger.error("this controller leads no more: %s", reason)
        self.take(self.machine.resign(self._loop.time()))

    def _too_slow(self, epoch: int) -> None:
        """A write does not end: another node is to lead, whose disk works."""
        if self.leading is not None and self.leading.epoch == epoch:
            self._resign("its disk does not answer")

    def _end_lead(self) -> None:
        leading, self.leading = self.leading, None
        if leading is None:
            return
        leading.end()
        self.stats.lead_ended()
        if leading.is_active:
            for ended in self._on_end:
                ended()

    # -- the image ----------------------------------------------------------------------------------------------------

    def _commit(self, high_watermark: int) -> None:
        self.stats.committed(high_watermark)
        self.changes.announce()
        if not self.machine.is_voter:
            self._voters_changed()
        is_removed = self.leading is not None and not self.machine.is_voter
        if is_removed and high_watermark > self.history.last_offset:
            logger.info("this node is no voter any more: another one is to lead")
            self.take(self.machine.resign(self._loop.time()))
        if self._applier is None and high_watermark > self.applied_end and not self.is_over:
            self._applier = self._loop.create_task(self._apply())

    async def _apply(self) -> None:
        try:
            while self.log.pending and self.log.pending[0].end_offset <= self.quorum.high_watermark:
                batches = await self.log.apply(self.quorum.high_watermark)
                self.applied_end = batches[-1].end_offset
                self.changes.announce()
                self._look_at_lead()
        except MetadataLogError as error:
            self._give_up(str(error))
        except Exception as error:
            logger.exception("committed metadata cannot be applied")
            self._give_up(f"committed metadata cannot be applied: {error!r}")
        finally:
            self._applier = None

    def _look_at_lead(self) -> None:
        leading = self.leading
        if leading is not None and not leading.is_active and self.applied_end > leading.start_offset:
            leading.is_active = True
            logger.info("this node is the active controller of epoch %d", leading.epoch)
            for begun in self._on_lead:
                begun(leading)

    # -- following ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            while not self.is_over:
                await self.settled()
                await self._turn()
        except NotControllerError:
            return
        except MetadataLogError as error:
            self._give_up(str(error))
        except Exception as error:
            logger.exception("the metadata log cannot be followed")
            self._give_up(f"the metadata log cannot be followed: {error!r}")

    def _asks(self) -> bool:
        return self.machine.state in (RaftState.FOLLOWER, RaftState.UNATTACHED)

    async def _turn(self) -> None:
        """One question and what comes of it."""
        if not self._asks():
            await self.changes.wait_until(lambda: self._asks() or self.is_over)
            return
        now, before = self._loop.time(), (self.machine.state, self.machine.epoch)
        ask = self.quorum.next(now)
        if isinstance(ask, Wait):
            await self.changes.wait_until(
                lambda: (self.machine.state, self.machine.epoch) != before or self.is_over, ask.until - now
            )
            return
        self._asked_in = before
        try:
            answer = await self.questions.ask(ask)
        except (NodeError, ValueError) as error:
            if self._asked_in is not None:
                self.quorum.failed(ask, self._loop.time())
                self._trouble(f"the controller {ask.to.host}:{ask.to.port} cannot be asked: {error}")
            return
        finally:
            self._asked_in = None
        if self.is_over or not self._asks():
            return
        served = self.quorum.served_count
        steps = self.quorum.answered(ask, answer, self._loop.time())
        self.take(self.machine.followed(steps, self._loop.time(), is_served=self.quorum.served_count > served))
        self._take_followed(ask, steps)

    def _take_followed(self, ask: Ask, steps: Sequence[FollowerStep]) -> None:
        """Take what a leader has answered into the log, in the turn in which the answer came."""
        has_voters = False
        if not any(isinstance(step, Trouble) for step in steps):
            self._outage.over("the controllers answer again")
            self._followed_ms = self.parts.clock.now_ms()
        for step in steps:
            match step:
                case Append(batches):
                    self.stats.fetched(sum(each.end_offset - each.base_offset for each in batches))
                    for batch in batches:
                        has_voters |= self.history.take(batch)
                    self.log.pending += batches
                    self.tail.put(batches)
                    self.take([_Write(batches)])
                case Truncate(end_offset):
                    has_voters |= self.history.truncate(end_offset)
                    self.log.cut(end_offset)
                    self.tail.cut(end_offset)
                    self.take([_Cut(end_offset)])
                case Committed():
                    self.take([step])
                case SnapshotPiece():
                    self.take([_Piece(ask, step)])
                case Trouble(text):
                    self._trouble(text)
                case Fatal(text):
                    raise MetadataLogError(text)
        if has_voters:
            self._voters_changed()
        self.changes.announce()

    async def _take_piece(self, ask: Ask, piece: SnapshotPiece) -> None:
        await self.changes.wait_until(lambda: self._applier is None or self.is_over)
        try:
            batches = await self.log.take_piece(piece, f"{ask.to.host}:{ask.to.port}")
        except DamagedBatchesError as error:
            self.quorum.snapshot_refused(ask, self._loop.time())
            self._trouble(str(error))
            return
        if batches is not None:
            self.quorum.snapshot_loaded(piece.snapshot)
            self.applied_end = piece.snapshot.end_offset
            self.history.begin(batches)
            self.tail.clear()
            self._voters_changed()

    def _trouble(self, text: str) -> None:
        self._outage.failed("%s; another one is asked", text)


def _state_of(election: Election) -> QuorumState:
    voted = election.voted
    if voted is None:
        return QuorumState(election.epoch, election.leader_id, -1, ZERO_UUID)
    return QuorumState(election.epoch, election.leader_id, voted.node_id, voted.directory_id)
