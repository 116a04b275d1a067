"""One fault after the other in a quorum of the product's replicas, and what each may not cost.

Of `kbroker.cluster.raft.replica`, `kbroker.cluster.raft.machine` and `kbroker.cluster.raft.voter_changes`.  A power cut
at each call of one voter's disk is `tests.cluster.kraft.test_voter_crashes`'; frozen and killed processes of a whole
cluster are `tests.cluster.kraft.test_kbroker_controllers`'.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import shutil
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.raft.machine import CHECK_QUORUM_FETCHES
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.schemas import wire
from tests.cluster.kraft.controllers import endpoint_of
from tests.cluster.raft.replicas import LISTENER, Node, World
from tests.replication.simulation.virtual_loop import run_virtually

FIVE = tuple(range(3001, 3006))
THREE = FIVE[:3]
GROUPS = [
    *((3, (each,)) for each in THREE),
    *((3, each) for each in itertools.combinations(THREE, 2)),
    *((5, each) for each in itertools.combinations(FIVE, 2)),
]
ELECTION_SECONDS = 20.0
"""Ten election timeouts."""


def play(world: World, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Start all, wait for a leader that has committed something, and go on."""

    async def run() -> None:
        for each in world.nodes.values():
            await each.start()
        await committed(world)
        await scenario(world)
        await world.heal()
        await committed(world)
        await same(world)

    run_virtually(asyncio.wait_for(run(), 900), world.loop)


async def committed(world: World, count: int = 3) -> None:
    """Some records, within the time that an election may take."""
    async with asyncio.timeout(ELECTION_SECONDS):
        done = 0
        while done < count:
            done += await write(world)
            await asyncio.sleep(0.05)


async def write(world: World, seconds: float = 2.0) -> bool:
    """Whether a record is acknowledged by then."""
    try:
        async with asyncio.timeout(seconds):
            return await world.write()
    except TimeoutError:
        return False


async def same(world: World) -> None:
    """All come to have all, and nothing that was acknowledged is gone or is another."""

    def ends() -> set[int]:
        return {-1 if each.replica is None else each.replica.applied_end for each in world.nodes.values()}

    async with asyncio.timeout(60):
        while len(ends()) > 1:
            await asyncio.sleep(0.1)
    world.check()


async def leader_of(world: World) -> Node:
    """Who leads, once there is one."""
    async with asyncio.timeout(ELECTION_SECONDS):
        while not (found := world.leaders()):
            await asyncio.sleep(0.05)
    return found[0]


def cut_off(world: World, nodes: Collection[int], *, outwards: bool = True, inwards: bool = True) -> None:
    """Nothing passes between these and the others, or only one way."""
    for one, other in itertools.product(nodes, set(world.nodes) - set(nodes)):
        world.cut |= {(one, other)} if outwards else set()
        world.cut |= {(other, one)} if inwards else set()


@pytest.mark.parametrize(("count", "gone"), GROUPS)
def test_voters_that_lose_their_power(tmp_path: Path, count: int, gone: tuple[int, ...]) -> None:
    """A majority that is left would stand still; one that is not would go on alone; what they had acknowledged would be
    gone."""

    async def scenario(world: World) -> None:
        for each in gone:
            world.nodes[each].crash(loses=True)
        if len(gone) < (count + 1) // 2:
            await committed(world)
        else:
            await asyncio.sleep(CHECK_QUORUM_FETCHES * world.timing.fetch + 1)
            assert not await write(world) and not world.leaders()

    play(World(1, count, tmp_path), scenario)


@pytest.mark.parametrize(("count", "gone"), GROUPS)
def test_voters_that_are_cut_off(tmp_path: Path, count: int, gone: tuple[int, ...]) -> None:
    """Both sides would acknowledge; or a side that comes back would depose the leader that the other one has."""

    async def scenario(world: World) -> None:
        cut_off(world, gone)
        await asyncio.sleep(CHECK_QUORUM_FETCHES * world.timing.fetch + 1)
        larger = set(world.nodes) - set(gone) if 2 * len(gone) < count else set(gone)
        async with asyncio.timeout(ELECTION_SECONDS):
            while not await write(world):
                await asyncio.sleep(0.1)
        leader = await leader_of(world)
        assert leader.node_id in larger and leader.replica is not None
        assert all(each.leading is None for number, each in world.nodes.items() if number not in larger)
        epoch = leader.replica.machine.epoch
        world.cut.clear()
        await asyncio.sleep(ELECTION_SECONDS)
        assert world.leaders() == [leader] and leader.replica.machine.epoch == epoch

    play(World(2, count, tmp_path), scenario)


@pytest.mark.parametrize("outwards", [True, False])
@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_a_voter_that_is_heard_or_hears_alone(tmp_path: Path, whose: str, outwards: bool) -> None:
    """It would raise the epoch again and again, or lead on without followers."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        assert leader.replica is not None
        one = leader if whose == "leader" else next(each for each in world.nodes.values() if each is not leader)
        before = leader.replica.machine.epoch
        cut_off(world, [one.node_id], outwards=outwards, inwards=not outwards)
        await asyncio.sleep(CHECK_QUORUM_FETCHES * world.timing.fetch + 1)
        await committed(world)
        await asyncio.sleep(60)
        assert await write(world)
        now = await leader_of(world)
        assert now.replica is not None and (now is leader) == (whose == "follower")
        assert now.replica.machine.epoch <= before + 3, "epochs are used up"

    play(World(3, 3, tmp_path), scenario)


def test_a_frozen_leader_that_comes_back(tmp_path: Path) -> None:
    """It would acknowledge what its successor does not have."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        replica = leader.replica
        assert replica is not None
        # A process that stands still keeps no time, reads no socket and ends no call of its disk.
        cut_off(world, [leader.node_id])
        world.loop.stuck = leader.files
        if replica._timer is not None:
            replica._timer.cancel()
        waiting = asyncio.ensure_future(leader.write(1_000_000))
        async with asyncio.timeout(ELECTION_SECONDS):
            while not any(each is not leader for each in world.leaders()):
                await asyncio.sleep(0.05)
        await committed(world)
        leader.crash(loses=True)
        world.cut.clear()
        world.loop.stuck = None
        await leader.start()
        assert leader.leading is None
        waiting.cancel()
        assert not any(repr(value).find("1000000") >= 0 for value in world.judge.acknowledged.values())

    play(World(4, 3, tmp_path), scenario)


def test_a_leader_that_is_heard_again_after_another_was_elected(tmp_path: Path) -> None:
    """A client would be acknowledged a record by the old leader, in the moment before it learns of the new one."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        cut_off(world, [leader.node_id])
        early = asyncio.ensure_future(leader.write(1_000_000))
        async with asyncio.timeout(ELECTION_SECONDS):
            while not any(each is not leader for each in world.leaders()):
                await asyncio.sleep(0.01)
        await committed(world)
        late = asyncio.ensure_future(leader.write(1_000_001))
        world.cut.clear()
        assert not await early and not await late

    play(World(5, 3, tmp_path), scenario)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_clocks_that_jump(tmp_path: Path, seconds: int) -> None:
    """A leader would be deposed, or fetches wait for an hour."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        assert leader.replica is not None
        epoch = leader.replica.machine.epoch
        for _ in range(3):
            world.clock._ahead_ms += seconds * 1000
            await committed(world)
            await asyncio.sleep(3)
        assert world.leaders() == [leader] and leader.replica.machine.epoch == epoch

    play(World(6, 3, tmp_path), scenario)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("whose", ["leader", "follower"])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_metadata_disk_that_is_full_or_fails(tmp_path: Path, whose: str, code: int, call: str) -> None:
    """The voter would acknowledge what it has not got, or the quorum stand still with it."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        one = leader if whose == "leader" else next(each for each in world.nodes.values() if each is not leader)

        def failing(*_: object) -> None:
            raise OSError(code, "the disk")

        setattr(one.files, call, failing)
        setattr(one.files, "fsync" if call == "fdatasync" else call, failing)
        await write(world)
        async with asyncio.timeout(ELECTION_SECONDS):
            while not one.failures:
                await write(world)
                await asyncio.sleep(0.05)
        assert str(one.folder) in one.failures[0] and "the disk" in one.failures[0]
        await committed(world)
        one.crash(loses=True)

    play(World(7, 3, tmp_path), scenario)


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_all_lose_their_power_at_a_step_of_a_write(tmp_path: Path, at: int) -> None:
    """What a majority had acknowledged would be on no disk."""

    async def scenario(world: World) -> None:
        count, plain = 0, world.loop.run_in_executor

        def counted(*args: Any) -> Any:
            nonlocal count
            count += 1
            if count == at + 1:
                world.loop.call_soon(cut.set)
            return plain(*args)

        cut = asyncio.Event()
        world.loop.run_in_executor = counted  # type: ignore[method-assign, assignment]
        writing = asyncio.ensure_future(world.writes(30))
        async with asyncio.timeout(60):
            await cut.wait()
        for each in world.nodes.values():
            each.crash(loses=True)
        writing.cancel()

    play(World(100 + at, 3, tmp_path), scenario)


def test_a_voter_restored_from_a_copy(tmp_path: Path) -> None:
    """It would stand as the log that it was, or keep records that others have taken back."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        one = next(each for each in world.nodes.values() if each is not leader)
        one.crash(loses=False)
        copy = tmp_path / "copy"
        shutil.copytree(one.folder, copy)
        await one.start()
        await committed(world, 20)
        leader.crash(loses=True)
        await committed(world, 5)
        await leader.start()
        await same(world)
        one.crash(loses=False)
        await committed(world)
        shutil.rmtree(one.folder)
        copy.rename(one.folder)
        await one.start()

    play(World(8, 3, tmp_path), scenario)


def test_two_voters_that_are_wiped(tmp_path: Path) -> None:
    """Empty directories would elect a leader of an empty log, which takes all records from the third."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        assert leader.replica is not None
        await committed(world, 10)
        kept = leader.replica.quorum.high_watermark
        others = [each for each in world.nodes.values() if each is not leader]
        keys = {each.node_id: each.key for each in others}
        folders = {each.node_id: tmp_path / f"kept-{each.node_id}" for each in others}
        for each in others:
            each.crash(loses=True)
            shutil.copytree(each.folder, folders[each.node_id])
            each.wipe()
            await each.start()
        await asyncio.sleep(ELECTION_SECONDS)
        assert not world.leaders() and not await write(world)
        assert leader.replica.quorum.end_offset >= kept
        # The directories come back: so does the quorum.
        for each in others:
            each.crash(loses=True)
            shutil.rmtree(each.folder)
            folders[each.node_id].rename(each.folder)
            each.key = keys[each.node_id]

    play(World(9, 3, tmp_path, voters=3), scenario)


def test_voters_that_are_removed_while_they_lead(tmp_path: Path) -> None:
    """The quorum would have no leader, or one that does not vote; or lose what the removed one had acknowledged."""

    async def scenario(world: World) -> None:
        gone: list[Node] = []
        for left in (4, 3, 2, 1):
            leader = await leader_of(world)
            assert leader.answers is not None
            await committed(world)
            answer = await leader.answers.remove_voter(
                wire.RemoveRaftVoterRequest(
                    cluster_id=None, voter_id=leader.node_id, voter_directory_id=leader.key.directory_id
                ),
                0,
            )
            assert answer.error_code == 0, answer
            gone.append(leader)
            async with asyncio.timeout(ELECTION_SECONDS):
                while not any(each not in gone for each in world.leaders()):
                    await asyncio.sleep(0.05)
            await committed(world)
            successor = await leader_of(world)
            assert successor not in gone and successor.replica is not None
            assert len(successor.replica.history.last.by_id) == left
        for each in gone:
            await _added(world, each)
        await committed(world)

    play(World(10, 5, tmp_path, voters=5), scenario)


async def _added(world: World, node: Node) -> None:
    request, at = wire.AddRaftVoterRequest, endpoint_of(node.node_id)
    come = request(
        cluster_id=None,
        voter_id=node.node_id,
        voter_directory_id=node.key.directory_id,
        listeners=[request.Listener(name=LISTENER, host=at.host, port=at.port)],
        ack_when_committed=True,
    )
    async with asyncio.timeout(60):
        while True:
            leader = await leader_of(world)
            assert leader.answers is not None
            answer: Any = await leader.answers.add_voter(come, 1)
            if answer.error_code == 0:
                return
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_a_batch_that_one_voter_cannot_apply(tmp_path: Path, whose: str) -> None:
    """The others would end with it, or it would go on with an image that lacks the batch."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        one = leader if whose == "leader" else next(each for each in world.nodes.values() if each is not leader)
        assert one.replica is not None

        async def refuse(_batches: Any) -> None:
            raise MetadataLogError("a record that this release does not know")

        one.replica.parts.metadata.apply = refuse  # type: ignore[method-assign, assignment]
        async with asyncio.timeout(ELECTION_SECONDS):
            while not one.failures:
                await write(world)
                await asyncio.sleep(0.05)
        assert "does not know" in one.failures[0]
        await committed(world)
        one.crash(loses=False)

    play(World(11, 3, tmp_path), scenario)


def test_twenty_times_the_rate(tmp_path: Path) -> None:
    """A leader would write each record by itself, fall behind, and be deposed by followers that wait."""

    async def scenario(world: World) -> None:
        leader = await leader_of(world)
        assert leader.replica is not None
        epoch, writes, plain = leader.replica.machine.epoch, 0, leader.replica.parts.directory.append_durably

        def counted(batches: Any) -> None:
            nonlocal writes
            writes += 1
            plain(batches)

        leader.replica.parts.directory.append_durably = counted  # type: ignore[method-assign]
        asked = []
        for number in range(2_000):
            asked.append(asyncio.ensure_future(leader.write(number)))
            if number % 10 == 0:
                await asyncio.sleep(0.005)
        async with asyncio.timeout(30):
            assert all(await asyncio.gather(*asked))
        assert writes < len(asked) / 5, "each record has a write of its own"
        assert world.leaders() == [leader] and leader.replica.machine.epoch == epoch

    play(World(12, 3, tmp_path), scenario)
