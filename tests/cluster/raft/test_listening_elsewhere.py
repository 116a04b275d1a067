"""Where voters listen, in the log: a voter, or the leader, that has moved, and a voter that comes at an address.

Of `kbroker.cluster.raft.own_voter` and `kbroker.cluster.raft.voter_changes`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kbroker.schemas import wire
from tests.cluster.kraft.controllers import endpoint_of
from tests.cluster.raft.replicas import LISTENER, World
from tests.replication.simulation.virtual_loop import run_virtually


def test_a_voter_that_listens_elsewhere_says_so(tmp_path: Path) -> None:
    """Others would ask it at its old address for ever."""

    async def run() -> None:
        leader = await world.begin()
        assert leader.replica is not None
        other = next(each for each in world.nodes.values() if each is not leader)
        assert other.replica is not None
        moved = endpoint_of(3009)
        other.replica.parts.endpoints[LISTENER] = moved  # type: ignore[index]
        history = leader.replica.history
        while history.last.endpoints(LISTENER)[other.node_id] != moved:
            await asyncio.sleep(0.5)
        assert history.last.by_id[other.node_id].key == other.key

    world = World(1, 3, tmp_path, voters=3)
    run_virtually(asyncio.wait_for(run(), 60), world.loop)


def test_a_leader_that_listens_elsewhere_has_the_log_say_so(tmp_path: Path) -> None:
    """Nodes that join a quorum of one by its log would ask at an address that nothing listens on."""

    async def run() -> None:
        (node,) = world.nodes.values()
        await node.start()
        await world.leader()
        moved = endpoint_of(3009)
        await node.stop()
        await node.start(moved)
        await world.leader()
        assert node.replica is not None
        history = node.replica.history
        assert history.last.endpoints(LISTENER) == {node.node_id: moved}
        assert history.last.by_id[node.node_id].key == node.key
        while node.replica.high_watermark <= history.last_offset:
            await asyncio.sleep(0.01)
        # Written once: the entry is what the node is now.
        offset = history.last_offset
        await asyncio.sleep(10)
        assert history.last_offset == offset
        await node.stop()
        await node.start(moved)
        await world.leader()
        assert node.replica.history.last.endpoints(LISTENER) == {node.node_id: moved}

    world = World(1, 1, tmp_path, voters=1)
    run_virtually(asyncio.wait_for(run(), 60), world.loop)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_the_time_that_a_request_for_a_voter_names_says_nothing(tmp_path: Path, timeout_ms: int) -> None:
    """A tool without a limit of its own could add no voter: Kafka's leader goes by its own request timeout."""

    async def run() -> None:
        for each in world.nodes.values():
            await each.start()
        await asyncio.sleep(10)
        (leader,) = world.leaders()
        other = next(each for each in world.nodes.values() if each is not leader)
        assert leader.answers is not None and leader.replica is not None
        request = wire.AddRaftVoterRequest
        at = endpoint_of(other.node_id)
        come = request(
            cluster_id=None,
            timeout_ms=timeout_ms,
            voter_id=other.node_id,
            voter_directory_id=other.key.directory_id,
            listeners=[request.Listener(name=LISTENER, host=at.host, port=at.port)],
            ack_when_committed=True,
        )
        answer = await leader.answers.add_voter(come, 1)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert leader.replica.high_watermark > leader.replica.history.last_offset
        # One that cannot be committed is over when the leader's own limit is.
        other.crash(loses=False)
        gone = wire.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=leader.node_id, voter_directory_id=leader.key.directory_id
        )
        began = world.loop.time()
        late = await leader.answers.remove_voter(gone, 0)
        assert late.error_code in (6, 7)  # The lead may end before.
        assert world.loop.time() - began <= leader.replica.parts.settings.request_seconds + 0.1

    world = World(1, 2, tmp_path, voters=1)
    run_virtually(asyncio.wait_for(run(), 60), world.loop)
