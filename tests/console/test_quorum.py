"""The quorum on the console's page of brokers: of brokers that are controllers, and of one that is none.

Of `kbroker.console.quorum`; also of `kbroker.administration.quorum`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kbroker.administration.quorum import end_of_log, partition_of, quorum_request
from kbroker.errors import ErrorCode, KafkaError
from kbroker.schemas import wire
from kbroker.types import uuid_from_text
from tests.cluster.kraft import processes as kraft
from tests.cluster.kraft.combined import combined, start_together, stop_together
from tests.console.browser import opened_window
from tests.console.viewer import Viewer
from tests.ports import free_port


def test_each_voter_is_shown_and_a_lost_majority_said(tmp_path: Path) -> None:
    """An operator would not see which node is behind, or wait for a page that never comes."""
    nodes = combined(tmp_path, [free_port() for _ in range(3)], {}, are_watched=True)
    start_together(nodes)
    try:
        viewer = Viewer(nodes[0].metrics_port)
        told = viewer.wait("quorum", lambda told: all(row["lag"] is not None for row in told["replicas"]))
        assert (told["has_quorum"], told["problem"]) == (True, "")
        assert [row["node_id"] for row in told["replicas"]] == [1, 2, 3]
        roles = {row["node_id"]: row["role"] for row in told["replicas"]}
        assert roles == {each: "leader" if each == told["leader_id"] else "voter" for each in (1, 2, 3)}
        assert told["epoch"] > 0
        assert 0 < told["high_watermark"] <= max(row["log_end_offset"] for row in told["replicas"])
        for row in told["replicas"]:
            assert abs(row["caught_up_ms"] / 1000 - time.time()) < 60
            (endpoint,) = row["endpoints"]
            assert endpoint.startswith("CONTROLLER://127.0.0.1:")
        with opened_window(nodes[0].metrics_url, tmp_path / "profile") as window:
            window.go("#/brokers")
            shown = window.run("return document.querySelector('main').innerText")
            assert f"Node {told['leader_id']} leads in epoch {told['epoch']}" in shown
            assert shown.count("CONTROLLER://127.0.0.1:") >= 3
            assert window.faults() == []
        for each in nodes[1:]:
            each.kill()
        gone = viewer.wait("quorum", lambda told: told["problem"] != "")
        assert gone["has_quorum"]
        assert gone["replicas"] == []
        assert viewer.ask("brokers")["page"]["rows"]
    finally:
        stop_together(nodes)


def test_a_broker_that_is_no_controller_shows_itself_as_an_observer(tmp_path: Path) -> None:
    """Only the controllers, which have no console, would know the quorum."""
    port = free_port()
    settings = {"metrics.listener": f"http://127.0.0.1:{port}"}
    with kraft.running(tmp_path, [kraft.Kbroker], settings=settings, controllers=1, kbrokers=1):
        viewer = Viewer(port)
        told = viewer.wait("quorum", lambda told: len(told["replicas"]) == 2)
        voter, observer = told["replicas"]
        assert (voter["role"], observer["role"]) == ("leader", "observer")
        assert observer["node_id"] == 1
        assert uuid_from_text(observer["directory"])
        assert observer["endpoints"]
        viewer.wait("quorum", lambda told: told["replicas"][1]["lag"] == 0)


def test_a_node_without_a_quorum_says_so(viewer: Viewer) -> None:
    """The page of a single broker would complain of controllers that it has none of."""
    told = viewer.ask("quorum")
    assert (told["has_quorum"], told["problem"], told["replicas"]) == (False, "", [])


def test_an_answer_without_the_log_is_an_error() -> None:
    """An odd answer would end the page, or the command, without a word."""
    asked = quorum_request()
    assert [topic.topic_name for topic in asked.topics] == ["__cluster_metadata"]
    with pytest.raises(KafkaError, match="names no metadata log"):
        partition_of(wire.DescribeQuorumResponse())
    data = wire.DescribeQuorumResponse.PartitionData
    row = data(partition_index=0, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), error_message="no leader")
    topic = wire.DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[row])
    with pytest.raises(KafkaError, match="no leader"):
        partition_of(wire.DescribeQuorumResponse(topics=[topic]))
    assert end_of_log(data(partition_index=0)) == -1
