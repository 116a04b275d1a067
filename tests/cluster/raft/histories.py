"""Histories of a quorum on virtual time: voters that die, hang and are cut off, and a judge over all that they do."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kbroker.cluster.kraft.batches import MetadataBatch, whole_batches
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_steps import (
    Append,
    Committed,
    EpochStart,
    Fatal,
    Fetch,
    Identity,
    KeptLog,
    Truncate,
    Wait,
)
from kbroker.cluster.raft.election import Election, RaftState, RaftTiming, ReplicaKey, Request, Voters
from kbroker.cluster.raft.machine import Lead, Persist, RaftMachine, RaftStep, Send, StopLeading
from kbroker.schemas import wire
from tests.cluster.kraft.controllers import config_record, data_batch, endpoint_of, leader_batch

TIMING = RaftTiming()
MOST_BATCHES = 3


@dataclass
class Judge:
    """What may never happen, of all nodes together."""

    leaders: dict[int, int] = field(default_factory=dict)
    votes: dict[tuple[int, int], ReplicaKey] = field(default_factory=dict)
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)
    committed: dict[int, bytes] = field(default_factory=dict)

    def leads(self, node_id: int, epoch: int) -> None:
        assert self.leaders.setdefault(epoch, node_id) == node_id, f"epoch {epoch} has two leaders"

    def persists(self, node_id: int, election: Election) -> None:
        if election.voted is not None:
            first = self.votes.setdefault((node_id, election.epoch), election.voted)
            assert first == election.voted, f"{node_id} votes twice in epoch {election.epoch}"

    def writes(self, batch: MetadataBatch) -> None:
        known = self.written.setdefault((batch.epoch, batch.base_offset), bytes(batch.data))
        assert known == bytes(batch.data), f"two batches of epoch {batch.epoch} at {batch.base_offset}"

    def commits(self, batches: list[MetadataBatch], high_watermark: int) -> None:
        for batch in batches:
            if batch.base_offset >= high_watermark:
                break
            known = self.committed.setdefault(batch.base_offset, bytes(batch.data))
            assert known == bytes(batch.data), f"what was committed at {batch.base_offset} has changed"
        assert not batches or high_watermark <= batches[-1].end_offset, "more is committed than there is"


class Voter:
    """One node: what it has on disk, and its machine while it lives."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.key = ReplicaKey(node_id, node_id.to_bytes(16, "big"))
        self.election = Election()
        self.batches: list[MetadataBatch] = []
        self.synced = 0
        self.machine: RaftMachine | None = None
        self.life = 0
        self.asking = False
        self.hangs_until = 0.0
        self.high_watermark = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def start(self) -> None:
        epochs: list[EpochStart] = []
        for batch in self.batches:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(batch.epoch, batch.base_offset))
        kept = KeptLog(self.end, epochs, None, self.election.epoch, self.election.leader_id)
        ids = list(self.world.nodes)
        voters = {each: endpoint_of(each) for each in ids}
        self.quorum = Quorum(Identity(self.key.node_id, "c", self.key.directory_id), kept, [], voters, self.world.rng)
        keys = {each: ReplicaKey(each, each.to_bytes(16, "big")) for each in ids}
        self.machine = RaftMachine(self.key, self.quorum, Voters(keys), self.election, TIMING, self.world.rng)
        self.life += 1
        self.asking = False
        self.carry_out(self.machine.start(self.world.now))
        self.arm()

    def crash(self, *, loses: bool) -> None:
        """The process ends; a power cut loses what was not synced."""
        self.machine = None
        self.life += 1
        if loses:
            self.batches = [each for each in self.batches if each.end_offset <= self.synced]
        else:
            self.synced = self.end

    def carry_out(self, steps: list[RaftStep]) -> None:
        for step in steps:
            match step:
                case Persist():
                    self.world.judge.persists(self.key.node_id, step.election)
                    self.election = step.election
                case Send():
                    self.send(step.request)
                case Lead():
                    self.world.judge.leads(self.key.node_id, step.epoch)
                    self.append(leader_batch(self.end, step.epoch, self.key.node_id))
                case Committed():
                    self.high_watermark = max(self.high_watermark, step.high_watermark)
                    self.world.judge.commits(self.batches, step.high_watermark)
                case StopLeading():
                    pass

    def append(self, batch: MetadataBatch) -> None:
        assert self.machine is not None
        self.world.judge.writes(batch)
        self.batches.append(batch)
        self.machine.appended(batch.base_offset, batch.end_offset)
        end, life = self.end, self.life

        def synced() -> None:
            if self.life == life and self.machine is not None:
                self.synced = max(self.synced, min(end, self.end))
                self.carry_out(self.machine.synced(min(end, self.end)))

        self.world.later(self.world.rng.choice((0.0, 0.001, 0.3)), synced)

    def write(self, number: int) -> None:
        """A client's record, if this node takes itself for the leader."""
        if self.machine is not None and self.machine.progress is not None:
            self.append(data_batch(self.end, self.machine.epoch, [config_record(number)]))

    # -- time and messages

    def arm(self) -> None:
        """Have the machine look at the time when it is due."""
        machine, life = self.machine, self.life
        if machine is None:
            return
        at = max(machine.deadline(), self.world.now)

        def due() -> None:
            if self.life == life and self.machine is not None and self.machine.deadline() <= self.world.now:
                self.carry_out(self.machine.tick(self.world.now))
                self.arm()
                self.ask()

        self.world.at(max(at, self.hangs_until), due)

    def send(self, request: Request) -> None:
        world, life = self.world, self.life
        other = world.nodes[request.to.node_id]

        def arrived() -> None:
            if other.machine is None:
                return failed()
            answer, steps = other.machine.asked(request, world.now)
            other.carry_out(steps)
            other.arm()
            other.ask()

            def back() -> None:
                if self.life == life and self.machine is not None:
                    self.carry_out(self.machine.answered(request, answer, world.now))
                    self.arm()
                    self.ask()

            world.deliver(other, self, back, failed)
            return None

        def failed() -> None:
            if self.life == life and self.machine is not None:
                self.carry_out(self.machine.failed(request, world.now))
                self.arm()

        world.deliver(self, other, arrived, failed)

    def ask(self) -> None:
        """A follower asks its leader, one question at a time; its log is on disk before."""
        machine, world, life = self.machine, self.world, self.life
        if machine is None or self.asking or machine.state is not RaftState.FOLLOWER:
            return
        question = self.quorum.next(world.now)
        if isinstance(question, Wait):
            world.at(max(question.until, world.now + 0.01), self.ask)
            return
        assert isinstance(question, Fetch)
        self.asking = True
        leader = world.nodes[int(question.to.port)]

        def arrived() -> None:
            if leader.machine is None:
                return failed()
            answer = leader.answer(self.key, question)
            world.deliver(leader, self, lambda: self.answered(life, question, answer), failed)
            return None

        def failed() -> None:
            if self.life == life and self.machine is not None:
                self.asking = False
                self.quorum.failed(question, world.now)
                world.later(0.01, self.ask)

        world.deliver(self, leader, arrived, failed)

    def answer(self, key: ReplicaKey, question: Fetch) -> wire.FetchResponse:
        assert self.machine is not None
        found, steps = self.machine.fetched(key, question.place, self.world.now)
        self.carry_out(steps)
        self.arm()
        row = wire.FetchResponse.PartitionData(partition_index=0, error_code=found.error)
        row.current_leader.leader_id, row.current_leader.leader_epoch = self.machine.leader_id, self.machine.epoch
        row.high_watermark = found.high_watermark
        if found.diverging is not None:
            row.diverging_epoch.epoch, row.diverging_epoch.end_offset = found.diverging
        elif not found.error:
            batches = [each for each in self.batches if each.base_offset >= question.place.end_offset]
            row.records = b"".join(bytes(each.data) for each in batches[:MOST_BATCHES])
        response = wire.FetchResponse()
        response.responses = [wire.FetchResponse.FetchableTopicResponse(partitions=[row])]
        return response

    def answered(self, life: int, question: Fetch, answer: wire.FetchResponse) -> None:
        machine, world = self.machine, self.world
        if self.life != life or machine is None:
            return
        self.asking = False
        if machine.state is not RaftState.FOLLOWER:
            return
        steps = self.quorum.answered(question, answer, world.now)
        for step in steps:
            match step:
                case Append():
                    for batch in step.batches:
                        world.judge.writes(batch)
                        self.batches.append(batch)
                case Truncate():
                    self.batches = [each for each in self.batches if each.end_offset <= step.end_offset]
                case Committed():
                    world.judge.commits(self.batches, step.high_watermark)
                    self.high_watermark = step.high_watermark
                case Fatal():
                    raise AssertionError(step.text)
        self.synced = self.end
        self.carry_out(machine.followed(steps, world.now))
        self.arm()
        world.later(0.02, self.ask)


class World:
    """`count` voters under faults that the seed draws."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.judge = Judge()
        self.loss = 0.0
        self.cut: set[tuple[int, int]] = set()
        self.nodes: dict[int, Voter] = {}
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self.number = 0
        for node_id in range(3001, 3001 + count):
            self.nodes[node_id] = Voter(self, node_id)
        for each in self.nodes.values():
            each.start()

    def at(self, when: float, call: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, call))

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self.now + seconds, call)

    def deliver(self, one: Voter, other: Voter, arrived: Callable[[], object], failed: Callable[[], object]) -> None:
        """Deliver a message some time later; for a lost one call the sender's `failed`, two seconds later."""
        pair = (one.key.node_id, other.key.node_id)
        if pair in self.cut or self.rng.random() < self.loss:
            self.later(2.0, failed)
            return
        slow = self.rng.random() < 0.02
        when = self.now + self.rng.uniform(0.0005, 0.5 if slow else 0.01)
        self.at(max(when, other.hangs_until), arrived)

    def run(self, seconds: float, *, writes: bool = True) -> None:
        until = self.now + seconds
        if writes:
            for _ in range(int(seconds * 4)):
                self.at(self.now + self.rng.uniform(0, seconds), self.write)
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = until

    def write(self) -> None:
        self.number += 1
        for each in self.nodes.values():
            each.write(self.number)

    # -- faults

    def disturb(self) -> None:
        """One fault, or the end of one."""
        rng, nodes = self.rng, list(self.nodes.values())
        one = rng.choice(nodes)
        match rng.randrange(8):
            case 0 | 1:
                if one.machine is not None:
                    one.crash(loses=rng.random() < 0.5)
                else:
                    one.start()
            case 2:
                self.cut |= {(one.key.node_id, each.key.node_id) for each in nodes if rng.random() < 0.7}
            case 3:
                self.cut |= {(each.key.node_id, one.key.node_id) for each in nodes if rng.random() < 0.7}
            case 4:
                self.cut.clear()
            case 5:
                one.hangs_until = self.now + rng.uniform(0.5, 6)
            case 6:
                self.loss = rng.choice((0.0, 0.0, 0.1, 0.4))
            case 7:
                for each in nodes:
                    each.crash(loses=True)
                for each in nodes:
                    each.start()

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0
        for each in self.nodes.values():
            each.hangs_until = 0.0
            if each.machine is None:
                each.start()

    @property
    def leaders(self) -> list[Voter]:
        """Those that take themselves for it, of the newest epoch."""
        alive = [each for each in self.nodes.values() if each.machine is not None]
        newest = max(each.machine.epoch for each in alive if each.machine is not None)
        return [
            each
            for each in alive
            if each.machine is not None and each.machine.state is RaftState.LEADER and each.machine.epoch == newest
        ]


def play(seed: int, count: int) -> World:
    """One history: faults, then peace, in which there has to be a leader that commits, and all come to have its log."""
    world = World(seed, count)
    for _ in range(world.rng.randrange(4, 14)):
        world.run(world.rng.uniform(0.2, 4))
        world.disturb()
    world.heal()
    world.run(10 * 2 * TIMING.election)
    assert len(world.leaders) == 1, f"{len(world.leaders)} leaders within ten election timeouts"
    before = max(world.judge.committed, default=-1)
    world.run(5)
    assert max(world.judge.committed) > before, "nothing is committed under a leader"
    epoch = max(world.judge.leaders)
    world.run(6, writes=False)
    assert max(world.judge.leaders) == epoch, "a healthy leader was deposed"
    ends = {(each.end, each.high_watermark) for each in world.nodes.values()}
    assert len(ends) == 1, f"logs differ: {ends}"
    (end, high_watermark), *_ = ends
    assert end == high_watermark
    logs = {b"".join(bytes(batch.data) for batch in each.batches) for each in world.nodes.values()}
    assert len(logs) == 1 and list(whole_batches(logs.pop(), "a log"))
    return world
