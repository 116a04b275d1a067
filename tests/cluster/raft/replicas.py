"""Replicas of a quorum as the product has them, with real frames and files, on virtual time, under faults.

Each node's disk takes a while for each call, and may lose its power: what was not synced is gone.  The network loses,
delays and cuts off.  A judge sees all records that any node has committed.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.cluster.kraft.batches import ControlRecord, records_of
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.settings import MetadataLogSettings, QuorumSettings
from kbroker.cluster.kraft.snapshots import encoded_snapshot, snapshot_name
from kbroker.cluster.raft.answers import RaftAnswers
from kbroker.cluster.raft.election import RaftTiming, ReplicaKey, Request, Vote
from kbroker.cluster.raft.leading import Leading
from kbroker.cluster.raft.own_voter import OwnVoter
from kbroker.cluster.raft.replica import RaftReplica, ReplicaParts
from kbroker.cluster.raft.voter_set import Voter, VoterSet
from kbroker.errors import NotControllerError
from kbroker.metadata.image import Endpoint
from kbroker.metadata.metadata_record import encode_record
from kbroker.schemas import wire
from kbroker.storage.log.partition_metadata import PARTITION_METADATA
from tests.cluster.kraft.controllers import config_record, endpoint_of
from tests.cluster.raft.links import Network
from tests.replication.simulation.virtual_loop import VirtualClock, VirtualLoop, run_virtually
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles

if TYPE_CHECKING:
    from concurrent.futures import Executor


CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
LISTENER = "CONTROLLER"


class DiskLoop(VirtualLoop):
    """What threads do takes some virtual time, and happens at its end."""

    rng = random.Random(0)
    stuck: FaultyFiles | None = None
    """The files of a disk that hangs."""

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()

        owner = getattr(getattr(func, "func", None), "__self__", None)

        def run() -> None:
            if self.stuck is not None and getattr(owner, "_files", None) is self.stuck:
                return
            try:
                result = func(*args)
            except CrashedError:
                return  # The process is gone.
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self.call_later(self.rng.choice((0.0, 0.0002, 0.001, 0.02)), run)
        return done


class NodeRandom(random.Random):
    """In an election that is troubled all draw the same time: candidates meet."""

    world: World

    def uniform(self, a: float, b: float) -> float:
        drawn = super().uniform(a, b)
        return a + (drawn - a) / 200 if self.world.is_troubled else drawn


class Judge:
    """What may never happen, of all nodes together."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, bytes] = {}
        self.acknowledged: dict[int, bytes] = {}

    def leads(self, node_id: int, epoch: int) -> None:
        assert self.leaders.setdefault(epoch, node_id) == node_id, f"epoch {epoch} has two leaders"

    def applied(self, node_id: int, offset: int, value: bytes) -> None:
        known = self.committed.setdefault(offset, value)
        assert known == value, f"node {node_id} has committed something else at {offset}"


class Node:
    """One node: its disk, and its replica while it lives."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.key = ReplicaKey(node_id, node_id.to_bytes(16, "big"))
        self.folder = world.folder / str(node_id)
        self.folder.mkdir()
        self.files = FaultyFiles()
        self.replica: RaftReplica | None = None
        self.answers: RaftAnswers | None = None
        self.leading: Leading | None = None
        self.life = 0
        self.failures: list[str] = []
        self.rng = NodeRandom(world.rng.random())
        self.rng.world = world

    async def start(self, at: Endpoint | None = None) -> None:
        """`at`: where it listens, if not at its own address."""
        world = self.world
        self.files = FaultyFiles()
        self.failures = []
        metadata = ClusterMetadata(CLUSTER)
        directory = MetadataDirectory(self.files, str(self.folder), world.log, world.clock)
        parts = ReplicaParts(
            world.loop,
            Network(self),
            QuorumSettings(voters=world.voters, bootstrap=world.bootstrap, listener=LISTENER, log=world.log),
            world.timing,
            directory,
            metadata,
            world.clock,
            self.rng,
            {LISTENER: at or endpoint_of(self.node_id)},
        )
        life = self.life
        replica = RaftReplica(parts, self.key, CLUSTER, self.failures.append)
        self._judged(replica)
        await replica.open()
        if life != self.life:
            return
        self.replica, self.answers = replica, RaftAnswers(replica)
        asked = replica.machine.asked

        def noted(request: Request, now: float) -> Any:
            if isinstance(request, Vote) and not request.is_pre_vote:
                world.spawn(world.voted(self, life))
            return asked(request, now)

        replica.machine.asked = noted  # type: ignore[method-assign]
        replica.on_lead(self._lead, self._end)
        replica.start()
        self.own_voter = OwnVoter(replica, self.answers.voters.keep_own, joins=False)
        self.own_voter.start()

    def _judged(self, replica: RaftReplica) -> None:
        apply = replica.log.apply

        async def applied(high_watermark: int) -> Any:
            batches = await apply(high_watermark)
            for batch in batches:
                for offset, record in records_of(batch, "applied"):
                    value = repr(record).encode() if isinstance(record, ControlRecord) else encode_record(record)
                    self.world.judge.applied(self.node_id, offset, value)
            return batches

        replica.log.apply = applied  # type: ignore[method-assign]

    def _lead(self, leading: Leading) -> None:
        self.leading = leading
        self.world.judge.leads(self.node_id, leading.epoch)

    def _end(self) -> None:
        self.leading = None

    def crash(self, *, loses: bool) -> None:
        """The process ends; a power cut loses what was not synced."""
        replica, self.replica, self.answers, self.leading = self.replica, None, None, None
        self.life += 1
        self.files.crashed = True
        if loses:
            self.files.fault = self.world.rng.choice((Fault.LOSE, Fault.FORGET, Fault.GARBLE))
        self.files.after_crash()
        self.files.release()
        if replica is not None:
            self.world.spawn(self.own_voter.close())
            self.world.bury(replica)

    def voter(self) -> Voter:
        """This node as a voter."""
        return Voter(self.key, {LISTENER: endpoint_of(self.node_id)})

    def format(self, voters: VoterSet) -> None:
        """Write the checkpoint that names the first voters."""
        place = self.folder / "__cluster_metadata-0"
        place.mkdir()
        control = (wire.KRaftVersionRecord(version=0, kraft_version=1), voters.record())
        (place / snapshot_name(SnapshotId(0, 0))).write_bytes(b"".join(encoded_snapshot([], 0, -1, control)))

    async def stop(self) -> None:
        replica, self.replica, self.answers, self.leading = self.replica, None, None, None
        if replica is not None:
            self.world.stopping[self.node_id] = RaftAnswers(replica)
            await self.own_voter.close()
            await replica.leave()
            await replica.close()
            del self.world.stopping[self.node_id]
        self.life += 1

    def wipe(self) -> None:
        """An empty directory, with an id of its own."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.key = ReplicaKey(self.node_id, self.world.rng.randbytes(16))

    async def write(self, number: int) -> bool:
        """A record, if this node leads; whether it was committed."""
        leading = self.leading
        if leading is None:
            return False
        record = config_record(number)
        try:
            end = leading.append([record])
            await leading.committed(end)
        except NotControllerError:
            return False
        self.world.judge.acknowledged[end - 1] = encode_record(record)
        return True


class World:
    """`count` nodes under faults that the seed draws."""

    def __init__(
        self, seed: int, count: int, folder: Path, *, timing: RaftTiming | None = None, voters: int | None = None
    ) -> None:
        """`voters`: so many of the nodes vote at first, by their checkpoint, and the others may join."""
        self.rng = random.Random(seed)
        self.loop = DiskLoop()
        self.loop.rng = self.rng
        self.clock = VirtualClock(self.loop)
        self.folder = folder
        self.judge = Judge()
        self.timing = timing or RaftTiming()
        self.log = MetadataLogSettings()
        ids = range(3001, 3001 + count)
        self.voters: dict[int, Endpoint] = {each: endpoint_of(each) for each in ids}
        self.bootstrap: tuple[Endpoint, ...] = ()
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.is_troubled = False
        self.number = 0
        self.stopping: dict[int, RaftAnswers] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.nodes = {each: Node(self, each) for each in ids}
        self.changes = 0
        """Changes of the voters that were acknowledged."""
        if voters is not None:
            self.bootstrap, self.voters = tuple(self.voters.values()), {}
            first = VoterSet({each: self.nodes[each].voter() for each in list(ids)[:voters]})
            for each in list(ids)[:voters]:
                self.nodes[each].format(first)

    def bury(self, replica: RaftReplica) -> None:
        """A process that is gone runs nothing any more."""
        replica.is_over = True
        if replica._timer is not None:
            replica._timer.cancel()
        for task in (replica._follower, replica._runner, replica._applier, *replica.peers._tasks):
            if task is not None:
                task.cancel()
        replica.questions.client.close()
        for client in replica.peers._clients.values():
            client.close()
        if replica.leading is not None:
            replica.leading.end()

    def spawn(self, running: Coroutine[Any, Any, Any]) -> None:
        """Let something run beside."""
        task = self.loop.create_task(running)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def write(self) -> bool:
        """A record through whoever leads."""
        self.number += 1
        done = [await each.write(self.number) for each in self.nodes.values() if each.leading is not None]
        return any(done)

    async def writes(self, seconds: float) -> None:
        """Records now and then, for so long."""
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            await asyncio.sleep(self.rng.uniform(0.01, 0.5))
            self.spawn(self.write())

    async def disturb(self) -> None:
        """One fault, or the end of one."""
        rng, nodes = self.rng, list(self.nodes.values())
        one = rng.choice(nodes)
        match rng.randrange(11):
            case 8:
                await self.lose_the_leader()
            case 9 | 10:
                await self.trouble_an_election()
            case 0 | 1:
                if one.replica is not None:
                    one.crash(loses=rng.random() < 0.5)
                else:
                    await one.start()
            case 2:
                self.cut |= {(one.node_id, each.node_id) for each in nodes if rng.random() < 0.7}
            case 3:
                self.cut |= {(each.node_id, one.node_id) for each in nodes if rng.random() < 0.7}
            case 4:
                self.cut.clear()
            case 5:
                if one.replica is not None:
                    await one.stop()
            case 6:
                self.loss = rng.choice((0.0, 0.0, 0.1, 0.3))
            case 7:
                for each in nodes:
                    if each.replica is not None:
                        each.crash(loses=True)
                for each in nodes:
                    await each.start()

    async def lose_the_leader(self) -> None:
        """The leader's disk hangs, then it loses its power, alone or with all that have its last records.

        What it has counted without a sync is gone."""
        leader = next((each for each in self.nodes.values() if each.leading is not None), None)
        others = [each for each in self.nodes.values() if each is not leader and each.replica is not None]
        if leader is None or not others:
            return
        away = others[: (len(self.nodes) - 1) // 2] if self.rng.random() < 0.6 else []
        self.loop.stuck = leader.files
        for each in away:
            self.cut |= {(each.node_id, node) for node in self.nodes} | {(node, each.node_id) for node in self.nodes}
        await asyncio.sleep(self.rng.uniform(0.3, 1.0))
        gone = [each for each in self.nodes.values() if each not in away and each.replica is not None]
        for each in gone if away else [leader]:
            if each.replica is not None:
                each.crash(loses=True)
        self.cut.clear()
        self.loop.stuck = None
        if leader.replica is None:
            await leader.start()
        await asyncio.sleep(self.rng.uniform(3, 8))
        for each in gone:
            if each.replica is None:
                await each.start()

    async def trouble_an_election(self) -> None:
        """The leader goes, and voters lose their power as soon as they have voted."""
        leader = next((each for each in self.nodes.values() if each.leading is not None), None)
        self.is_troubled = True
        if leader is not None:
            leader.crash(loses=True)
            await leader.start()
        await asyncio.sleep(self.rng.uniform(2, 5))
        self.is_troubled = False

    async def voted(self, node: Node, life: int) -> None:
        """A node has voted, or has asked for votes."""
        if not self.is_troubled or self.rng.random() < 0.4:
            return
        await asyncio.sleep(self.rng.uniform(0.0, 0.01))
        if node.life == life and node.replica is not None:
            node.crash(loses=True)
            await asyncio.sleep(self.rng.uniform(0.0, 0.05))
            if node.replica is None:
                await node.start()

    async def change_voters(self) -> None:
        """Add or remove a voter, if there is a leader.  One that is removed may lose its directory."""
        leader = next((each for each in self.nodes.values() if each.leading is not None), None)
        if leader is None or leader.answers is None or leader.replica is None:
            return
        answers, voters = leader.answers, leader.replica.history.last
        others = [each for each in self.nodes.values() if not voters.voters.has(each.key)]
        if len(voters.by_id) > 1 and (not others or self.rng.random() < 0.5):
            one = self.rng.choice(list(voters.by_id.values())).key
            gone = wire.RemoveRaftVoterRequest(
                cluster_id=None, voter_id=one.node_id, voter_directory_id=one.directory_id
            )
            answer: Any = await answers.remove_voter(gone, 0)
            if not answer.error_code and self.rng.random() < 0.4:
                node = self.nodes[one.node_id]
                if node.replica is not None:
                    node.crash(loses=True)
                node.wipe()
                await node.start()
        elif others:
            node = self.rng.choice(others)
            request = wire.AddRaftVoterRequest
            at = endpoint_of(node.node_id)
            listeners = [request.Listener(name=LISTENER, host=at.host, port=at.port)]
            come = request(
                cluster_id=None,
                voter_id=node.node_id,
                voter_directory_id=node.key.directory_id,
                listeners=listeners,
                ack_when_committed=self.rng.random() < 0.7,
            )
            answer = await answers.add_voter(come, 1)
        else:
            return
        self.changes += not answer.error_code

    async def heal(self) -> None:
        """The end of all faults."""
        self.cut.clear()
        self.loss = 0.0
        for each in self.nodes.values():
            if each.replica is None:
                await each.start()

    async def begin(self) -> Node:
        """Start all; the first leader."""
        for each in self.nodes.values():
            await each.start()
        return await self.leader()

    async def leader(self) -> Node:
        """Wait until there is one."""
        while not self.leaders():
            await asyncio.sleep(0.01)
        (found,) = self.leaders()
        return found

    def leaders(self) -> list[Node]:
        """Those that lead the newest epoch."""
        alive = [each.replica for each in self.nodes.values() if each.replica is not None]
        newest = max(each.machine.epoch for each in alive)
        return [
            each
            for each in self.nodes.values()
            if each.leading is not None and each.replica is not None and each.replica.machine.epoch == newest
        ]

    def check(self) -> None:
        """No node has given up, and nothing that was acknowledged is gone."""
        for each in self.nodes.values():
            assert not each.failures, f"node {each.node_id}: {each.failures}"
        for offset, value in self.judge.acknowledged.items():
            assert self.judge.committed.get(offset) == value, f"what was acknowledged at {offset} is gone"


async def history(world: World) -> None:
    """Faults, then peace, in which there has to be a leader that commits, and all come to have its log."""
    for each in world.nodes.values():
        await each.start()
    writing = world.loop.create_task(world.writes(60))
    for _ in range(world.rng.randrange(4, 12)):
        await asyncio.sleep(world.rng.uniform(0.2, 4))
        await world.disturb()
        if world.bootstrap and world.rng.random() < 0.7:
            world.spawn(world.change_voters())
    await world.heal()
    await asyncio.sleep(20)
    world.check()
    assert len(world.leaders()) == 1, f"{len(world.leaders())} leaders within ten election timeouts"
    before = max(world.judge.acknowledged, default=-1)
    await asyncio.sleep(5)
    while not await world.write():
        await asyncio.sleep(0.1)
    assert max(world.judge.acknowledged) > before, "nothing is committed under a leader"
    writing.cancel()
    epoch = max(world.judge.leaders)
    await asyncio.sleep(6)
    world.check()
    assert max(world.judge.leaders) == epoch, "a healthy leader was deposed"
    replicas = [each.replica for each in world.nodes.values() if each.replica is not None]
    ends = {(each.quorum.end_offset, each.quorum.high_watermark, each.applied_end) for each in replicas}
    assert len(ends) == 1 and len(set(next(iter(ends)))) == 1, f"logs differ: {ends}"
    for node in world.nodes.values():
        node.crash(loses=True)
    logs = {_log_of(node) for node in world.nodes.values()}
    assert len(logs) == 1, "the files differ"


def _log_of(node: Node) -> bytes:
    folder = node.folder / "__cluster_metadata-0"
    assert (folder / PARTITION_METADATA).exists()
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def play(seed: int, count: int, folder: Path, voters: int | None = None) -> World:
    """One history."""
    world = World(seed, count, folder, voters=voters)
    run_virtually(history(world), world.loop)
    return world
