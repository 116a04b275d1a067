"""Replicas of a quorum under faults: histories, bugs that they find, and rules of the driver one by one.

Of `kbroker.cluster.raft.replica`, `kbroker.cluster.raft.leading`, `kbroker.cluster.raft.answers`,
`kbroker.cluster.raft.peers`, `kbroker.cluster.raft.log_tail`, `kbroker.cluster.raft.voter_changes`,
`kbroker.cluster.raft.own_voter`, `kbroker.cluster.kraft.replicated_log` and `kbroker.cluster.kraft.log_questions`.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.quorum_requests import METADATA_TOPIC_ID
from kbroker.cluster.raft.leading import Leading
from kbroker.cluster.raft.machine import RaftMachine
from kbroker.cluster.raft.replica import RaftReplica
from kbroker.cluster.raft.service import SERVED
from kbroker.errors import InvalidUpdateVersionError, NotControllerError
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message, response_message, wire
from kbroker.types import CLUSTER_METADATA_TOPIC
from tests.cluster.kraft.controllers import endpoint_of
from tests.cluster.raft.links import NAMES
from tests.cluster.raft.replicas import LISTENER, World, play
from tests.replication.simulation.virtual_loop import run_virtually

HISTORIES = int(os.environ.get("TEST_REPLICA_HISTORIES", "3"))
SEEDS_FOR_A_BUG = 60


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_replicas_agree_under_faults(tmp_path: Path, count: int) -> None:
    """A record that was acknowledged would be lost, or the quorum have no leader for good."""
    for seed in range(HISTORIES):
        play(seed, count, _folder(tmp_path, seed))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_voters_come_and_go_under_faults(tmp_path: Path, count: int) -> None:
    """Two majorities would decide, or none could."""
    changes = 0
    for seed in range(HISTORIES + 3):
        changes += play(seed, count, _folder(tmp_path, seed), (count + 2) // 2).changes
    assert changes, "no voter has come or gone"


def _folder(tmp_path: Path, seed: int) -> Path:
    folder = tmp_path / str(seed)
    folder.mkdir()
    return folder


def _counts_itself_before_it_has_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: RaftReplica, batches: Any, before: Any = RaftReplica._write_own) -> None:
        before(self, batches)
        self.take(self.machine.synced(batches[-1].end_offset))

    monkeypatch.setattr(RaftReplica, "_write_own", write)


def _followers_do_not_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(self: MetadataDirectory, batches: Any) -> None:
        self.append(batches)

    monkeypatch.setattr(MetadataDirectory, "append_durably", written)


def _acknowledges_what_is_only_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Leading, end_offset: int) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Leading, "committed", at_once)


def _keeps_its_waiting_requests_when_it_leads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftReplica, "_end_lead", lambda self: None)


def _takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataDirectory, "truncate", lambda self, end_offset: None)


def _resumes_as_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    start = RaftMachine.start

    def resumed(self: RaftMachine, now: float) -> list[Any]:
        kept = self._kept
        if kept.leader_id == self.me.node_id and kept.epoch == self.epoch:
            self._voted = self.me
            self.state = self.state.CANDIDATE
            self._tally.voters, self._tally.granted = tuple(self.voters.keys), set(self.voters.keys)
            return self._won(now)
        return start(self, now)

    monkeypatch.setattr(RaftMachine, "start", resumed)


@pytest.mark.parametrize(
    "bug",
    [
        _counts_itself_before_it_has_synced,
        _followers_do_not_sync,
        _acknowledges_what_is_only_appended,
        _keeps_its_waiting_requests_when_it_leads_no_more,
        _takes_nothing_back,
        _resumes_as_leader,
    ],
)
def test_histories_find_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[Any], None]) -> None:
    """Histories that find nothing would prove nothing."""
    bug(monkeypatch)
    for seed in range(SEEDS_FOR_A_BUG):
        try:
            play(seed, 3, _folder(tmp_path, seed))
        except BaseException:
            return
    raise AssertionError(f"{bug.__name__} is not found")


def alone(tmp_path: Path, play: Callable[[World], Coroutine[Any, Any, None]], count: int = 3) -> None:
    """Play with a world whose nodes are not started."""
    world = World(1, count, tmp_path)
    run_virtually(play(world), world.loop)


def vote(candidate: int, epoch: int, *, is_pre_vote: bool = False) -> wire.VoteRequest:
    """A candidate with an empty log asks node 3001."""
    request = wire.VoteRequest
    row = request.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=candidate.to_bytes(16, "big"),
        last_offset_epoch=0,
        last_offset=0,
        pre_vote=is_pre_vote,
    )
    topic = request.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])
    return request(cluster_id=None, voter_id=3001, topics=[topic])


def test_a_vote_leaves_once_it_is_on_disk(tmp_path: Path) -> None:
    """After a loss of power the voter would give another vote in the same epoch."""

    async def run(world: World) -> None:
        node = world.nodes[3001]
        await node.start()
        assert node.answers is not None
        world.loop.stuck = node.files
        asked = asyncio.ensure_future(node.answers.vote(vote(3002, 1), 2))
        await asyncio.sleep(0.5)
        assert not asked.done()
        asked.cancel()
        world.loop.stuck = None
        node.crash(loses=True)
        await node.start()
        answer = await node.answers.vote(vote(3002, 1), 2)
        assert answer.topics[0].partitions[0].vote_granted
        node.crash(loses=True)
        await node.start()
        for candidate, is_granted in ((3003, False), (3002, True)):
            row = (await node.answers.vote(vote(candidate, 1), 2)).topics[0].partitions[0]
            assert (row.vote_granted, row.leader_epoch) == (is_granted, 1)

    alone(tmp_path, run)


def test_a_follower_acknowledges_what_is_on_disk(tmp_path: Path) -> None:
    """The leader would count records that a loss of power takes."""

    async def run(world: World) -> None:
        for each in (3001, 3002):
            await world.nodes[each].start()
        leader = await world.leader()
        (follower,) = (each for each in world.nodes.values() if each is not leader and each.replica is not None)
        assert await leader.write(1)
        world.loop.stuck = follower.files
        written = asyncio.ensure_future(leader.write(2))
        await asyncio.sleep(1.0)
        assert not written.done(), "a majority does not have it"
        world.loop.stuck = None
        follower.crash(loses=True)
        await follower.start()
        assert await written

    alone(tmp_path, run)


def test_a_fetch_waits_for_records_and_ends_with_the_lead(tmp_path: Path) -> None:
    """A replica would ask without a pause, or hear nothing of a resignation."""

    async def run(world: World) -> None:
        await world.nodes[3001].start()
        node = world.nodes[3001]
        while node.leading is None:
            await asyncio.sleep(0.01)
        assert node.answers is not None and node.replica is not None
        replica = node.replica
        end = replica.quorum.end_offset

        def fetch(offset: int) -> Awaitable[wire.FetchResponse]:
            request = wire.FetchRequest
            row = request.FetchPartition(
                partition=0,
                current_leader_epoch=1,
                fetch_offset=offset,
                last_fetched_epoch=1 if offset else 0,
                high_watermark=replica.high_watermark,
            )
            state = request.ReplicaState(replica_id=7, replica_epoch=-1)
            topic = request.FetchTopic(topic_id=bytes(15) + b"\1", partitions=[row])
            made = request(cluster_id=None, max_wait_ms=5000, max_bytes=1 << 20, replica_state=state, topics=[topic])
            assert node.answers is not None
            return asyncio.ensure_future(node.answers.fetch(made, 18))

        whole = (await fetch(0)).responses[0].partitions[0]
        assert whole.records and whole.current_leader.leader_id == 3001
        began = world.loop.time()
        waiting = fetch(end)
        await node.write(1)
        row = (await waiting).responses[0].partitions[0]
        assert row.records and world.loop.time() - began < 1
        waiting = fetch(replica.quorum.end_offset)
        await asyncio.sleep(0.1)
        replica.take(replica.machine.resign(world.loop.time()))
        assert (await waiting).responses[0].partitions[0].error_code == 6
        described = await node.answers.describe(
            wire.DescribeQuorumRequest(
                topics=[
                    wire.DescribeQuorumRequest.TopicData(
                        topic_name=CLUSTER_METADATA_TOPIC,
                        partitions=[wire.DescribeQuorumRequest.PartitionData(partition_index=0)],
                    )
                ]
            ),
            2,
        )
        assert described.topics[0].partitions[0].error_code == 6

    alone(tmp_path, run, count=1)


def test_a_leader_that_gives_up_at_once_hands_on_at_once(tmp_path: Path) -> None:
    """A cluster would stand still for the fetch timers while a node fails to begin."""

    async def run(world: World) -> None:
        first = await world.begin()
        leading = first.leading
        assert leading is not None
        began = world.loop.time()
        leading.resign("it cannot begin")
        assert leading.is_over and first.leading is None
        while not [each for each in world.leaders() if each is not first]:
            await asyncio.sleep(0.01)
        assert world.loop.time() - began < world.timing.election

    alone(tmp_path, run)


def test_fixed_voters_become_those_of_the_log(tmp_path: Path) -> None:
    """A cluster that began with voters in its settings could add none, and would lose them if a step failed."""

    async def run(world: World) -> None:
        leader = await world.begin()
        assert leader.answers is not None and leader.replica is not None
        with pytest.raises(InvalidUpdateVersionError, match="have not said"):
            await leader.answers.voters.upgrade(1)
        await asyncio.sleep(5)
        assert await leader.write(1)
        await leader.answers.voters.upgrade(1)
        assert await leader.write(2)
        await asyncio.sleep(2)
        for each in world.nodes.values():
            assert each.replica is not None
            history = each.replica.history
            assert history.kraft_version == 1
            assert {node_id: voter.key for node_id, voter in history.last.by_id.items()} == {
                node.node_id: node.key for node in world.nodes.values()
            }
        with pytest.raises(InvalidUpdateVersionError, match="downgrade"):
            await leader.answers.voters.upgrade(0)
        gone = next(each for each in world.nodes.values() if each is not leader)
        request = wire.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=gone.node_id, voter_directory_id=gone.key.directory_id
        )
        assert (await leader.answers.remove_voter(request, 0)).error_code == 0
        assert gone.node_id not in leader.replica.history.last.by_id
        for each in world.nodes.values():
            each.crash(loses=True)
            await each.start()
        await asyncio.sleep(5)
        assert await world.write()

    alone(tmp_path, run)


def test_a_replica_whose_disk_has_failed_says_nothing_more(tmp_path: Path) -> None:
    """It would give a vote, or acknowledge records, that it has not got after its restart."""

    async def run(world: World) -> None:
        node = world.nodes[3001]
        await node.start()
        assert node.answers is not None and node.replica is not None

        def failing(*_: object) -> None:
            raise OSError(errno.EIO, "disk")

        node.replica.parts.directory.elected = failing  # type: ignore[method-assign]
        with pytest.raises(NotControllerError):
            await node.answers.vote(vote(3002, 50), 2)
        with pytest.raises(NotControllerError):
            await node.answers.vote(vote(3003, 50), 2)
        assert node.failures

    alone(tmp_path, run)


def test_a_leader_whose_disk_hangs_leaves_the_lead(tmp_path: Path) -> None:
    """Nothing would be answered any more, while its followers go on hearing from it."""

    async def run(world: World) -> None:
        leader = await world.begin()
        world.loop.stuck = leader.files
        written = asyncio.ensure_future(leader.write(1))
        await asyncio.sleep(20)
        assert not await written
        assert [each for each in world.leaders() if each is not leader]

    alone(tmp_path, run)


def test_a_leader_goes_on_when_a_second_voter_comes(tmp_path: Path) -> None:
    """Each quorum of one would lose its leader with its second node."""

    async def run() -> None:
        for each in world.nodes.values():
            await each.start()
        await asyncio.sleep(10)
        (leader,) = world.leaders()
        other = next(each for each in world.nodes.values() if each is not leader)
        assert leader.answers is not None and leader.replica is not None
        epoch = leader.replica.machine.epoch
        request = wire.AddRaftVoterRequest
        at = endpoint_of(other.node_id)
        come = request(
            cluster_id=None,
            voter_id=other.node_id,
            voter_directory_id=other.key.directory_id,
            listeners=[request.Listener(name=LISTENER, host=at.host, port=at.port)],
            ack_when_committed=True,
        )
        assert (await leader.answers.add_voter(come, 1)).error_code == 0
        await asyncio.sleep(10)
        assert world.leaders() == [leader] and leader.replica.machine.epoch == epoch

    world = World(1, 2, tmp_path, voters=1)
    run_virtually(asyncio.wait_for(run(), 60), world.loop)


def test_answers_of_every_version_can_be_sent(tmp_path: Path) -> None:
    """Brokers and tools of older releases would be hung up on as soon as there is a leader."""

    async def run(world: World) -> None:
        leader = await world.begin()
        assert leader.answers is not None
        for api_key, (low, high) in SERVED.items():
            serve = getattr(leader.answers, NAMES[api_key])
            for version in range(low, high + 1):
                request = request_message(api_key).program(version).decode(sound(api_key, version))
                answer = await serve(request, version)
                assert response_message(api_key).program(version).encode(answer)

    alone(tmp_path, run)


def sound(api_key: ApiKey, version: int) -> bytes:
    """The body of a request of the quorum's one partition, in its first epochs."""
    made = request_message(api_key)
    values: dict[str, Any] = {}
    if api_key is ApiKey.FETCH:
        row = made.FetchPartition(partition=0, current_leader_epoch=1, last_fetched_epoch=0 if version >= 12 else -1)
        topic = made.FetchTopic(partitions=[row])
        if version >= 13:
            topic.topic_id = METADATA_TOPIC_ID
        else:
            topic.topic = CLUSTER_METADATA_TOPIC
        values = {"topics": [topic]}
    elif api_key is ApiKey.FETCH_SNAPSHOT:
        part = made.PartitionSnapshot(partition=0, current_leader_epoch=1)
        values = {"topics": [made.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[part])]}
    elif api_key in (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM):
        part = made.PartitionData(partition_index=0)
        values = {"topics": [made.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[part])]}
    return bytes(made.program(version).encode(made(**values)))
