"""A process with the controller role alone: `kbroker.assembly.controller_node`, `kbroker.assembly.quorum`."""

from __future__ import annotations

from pathlib import Path

import uvloop

from kbroker.metrics.readiness import ReadyState
from kbroker.schemas import wire
from tests.assembly.quorum_stand_ins import running


def test_a_controller_starts_serves_and_stops(tmp_path: Path) -> None:
    """Nothing of this node's part in a quorum would work."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            assert bench.node.readiness.state is ReadyState.READY
            assert bench.replica.endpoints["CONTROLLER"].host == "127.0.0.1"
            assert bench.replica.endpoints["CONTROLLER"].port == bench.node.node.listeners.all[0].port
            answer = await bench.ask(wire.VoteRequest(cluster_id=None, topics=[]), 2)
            assert answer.error_code == 0
            assert bench.replica.asked == [("Vote", 2)]
        assert bench.replica.steps == ["start", "leave", "close"]

    uvloop.run(body())
