"""What nodes with the controller role show of their quorum, beside what Apache Kafka's controller shows.

Of `kbroker.assembly.cluster_figures`, `kbroker.assembly.quorum_figures`, `kbroker.cluster.controller.change_queue`,
`kbroker.cluster.controller.election_counts`, `kbroker.cluster.raft.quorum_stats`, `kbroker.metrics.kafka_quorum`,
`kbroker.metrics.quorum`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kbroker.cluster.controller.change_queue import ChangeQueue
from kbroker.cluster.controller.election_counts import ElectionCounts
from kbroker.cluster.raft.election import RaftState
from kbroker.cluster.raft.quorum_stats import WINDOW_SECONDS, QuorumStats, Times
from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.types import random_uuid
from tests.broker_process import BrokerProcess
from tests.cluster.kraft.combined import combined, start_together, stop_together
from tests.cluster.kraft.processes import Cluster, JavaNode, Kbroker
from tests.compat.waiting import wait_for
from tests.metrics.jmx import beans, opened, shown
from tests.metrics.kafka_series import CONTROLLER, KRAFT, Samples, lacking, of, scraped
from tests.ports import free_port

SETTINGS = {"offsets.topic.replication.factor": "1"}
CONTROLLERS_BEANS = re.compile(
    r"kafka_controller_\w+|kafka_server_(raft_metrics|raft_channel_metrics_(request|response|incoming_byte|"
    r"outgoing_byte)_total|MetadataLoader|SnapshotEmitter)\w*"
)
#: Of threads that are none here, and of what a number says less of than the log does.
NOT_SHOWN = {("kafka_controller_ControllerEventManager_Value", "AvgIdleRatio")}
NOT_SHOWN |= {("kafka_server_MetadataLoader_Value", "AvgIdleRatio")}
#: Attributes of Kafka's histograms and meters that are shown by no naming of ours.
ATTRIBUTES = re.compile(r"_(Max|Min|StdDev|MeanRate|FiveMinuteRate|FifteenMinuteRate)$")
EQUAL = (
    *("ActiveControllerCount", "ActiveBrokerCount", "FencedBrokerCount", "ControlledShutdownBrokerCount"),
    *("GlobalTopicCount", "GlobalPartitionCount", "OfflinePartitionsCount", "PreferredReplicaImbalanceCount"),
    *("MetadataErrorCount", "TimedOutBrokerHeartbeatCount", "NewActiveControllersCount", "IgnoredStaticVoters"),
    *("EventQueueOperationsTimedOutCount", "UncleanLeaderElectionsPerSec", "ElectionFromEligibleLeaderReplicasPerSec"),
    *("CurrentMetadataVersion", "FinalizedLevel", "BrokerRegistrationState"),
)
RAFT_EQUAL = ("current_epoch", "number_of_voters", "number_of_observers", "uncommitted_voter_change", "log_end_epoch")


def name_of(key: tuple[str, frozenset[tuple[str, str]]]) -> tuple[str, str]:
    return key[0], dict(key[1]).get("name", "")


def use(port: int) -> None:
    """Topics come, grow and go."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for future in admin.create_topics([NewTopic("stays", 3), NewTopic("goes", 2)]).values():
        future.result(60)
    admin.create_partitions([NewPartitions("stays", 5)])["stays"].result(60)
    admin.delete_topics(["goes"])["goes"].result(60)


@contextmanager
def watched(folder: Path, *, is_kbroker: bool) -> Iterator[tuple[Cluster, int]]:
    """A controller and a broker of kbroker; the port for the controller's metrics, or beans."""
    folder.mkdir()
    cluster, port = Cluster(folder, [Kbroker], 1, {}, kbrokers=int(is_kbroker)), free_port()
    (controller,) = cluster.controllers.values()
    try:
        if isinstance(controller, JavaNode):
            java = controller._java
            controller._java = lambda *words: opened(java(*words), port)  # type: ignore[method-assign]
        else:
            controller._settings["metrics.listener"] = f"http://127.0.0.1:{port}"
        controller.start()
        cluster.nodes[1].start()
        cluster.wait_known({1})
        yield cluster, port
    finally:
        for each in cluster.everybody():
            each.kill()


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_controller_shows_what_kafkas_shows(tmp_path: Path) -> None:
    """Dashboards of Kafka's controllers would stay empty, or show other numbers for the same cluster."""
    with watched(tmp_path / "kafka", is_kbroker=False) as (cluster, port):
        use(cluster.nodes[1].port)
        theirs = {key: value for key, value in beans(port).items() if CONTROLLERS_BEANS.fullmatch(key[0])}
    with watched(tmp_path / "kbroker", is_kbroker=True) as (cluster, port):
        use(cluster.nodes[1].port)
        ours = shown(port)
    wanted = {name_of(key) for key in theirs if not ATTRIBUTES.search(key[0])} - NOT_SHOWN
    assert len(wanted) > 40
    assert wanted - {name_of(key) for key in ours} == set()
    compared = 0
    for (name, labels), value in theirs.items():
        is_equal = dict(labels).get("name") in EQUAL and name.endswith(("_Value", "_Count"))
        if is_equal or name in {f"kafka_server_raft_metrics_{each}" for each in RAFT_EQUAL}:
            assert ours[name, labels] == value, (name, labels)
            compared += 1
    assert compared > 20


def test_each_node_of_a_quorum_shows_its_part(tmp_path: Path) -> None:
    """Who looks for the voter that is behind, or for the leader, would find neither."""
    nodes = combined(tmp_path, [free_port() for _ in range(3)], SETTINGS, are_watched=True)
    start_together(nodes)
    try:
        for each in nodes:  # It answers clients before it is ready, and shows figures of its cluster after.
            wait_for(partial(_shows_the_leader, each), "the figures of a node", seconds=60)
        pages = [scraped(each.metrics_url) for each in nodes]
        leader = int(of(pages[0], "kafka_server_raftmetrics_current_leader"))
        for node_id, page in enumerate(pages, 1):
            state = "leader" if node_id == leader else "follower"
            assert lacking(page, KRAFT) == set()
            assert lacking(page, CONTROLLER) - {"kafka_server_raftmetrics_commit_latency_avg"} == set()
            assert ("kafka_server_raftmetrics_commit_latency_avg" in page) == (node_id == leader)
            assert state in {labels["current_state"] for labels, _ in page["kafka_server_raftmetrics_current_state"]}
            assert of(page, "kafka_controller_kafkacontroller_activecontrollercount") == (node_id == leader)
            assert of(page, "kafka_server_raftmetrics_number_of_voters") == 3
            assert of(page, "kafka_controller_kafkacontroller_newactivecontrollerscount") >= 1
            assert ("kafka_server_raftmetrics_number_of_observers" in page) == (node_id == leader)
        own = scraped(nodes[leader - 1].metrics_url, "/metrics")
        others = {str(each) for each in (1, 2, 3) if each != leader}
        assert {labels["voter"] for labels, _ in own["kbroker_quorum_voter_silence_seconds"]} == others
        assert of(own, "kbroker_quorum_commits_total") > 0
        assert of(own, "kbroker_quorum_commit_seconds_total") > 0
        _silent(nodes, leader)
    finally:
        stop_together(nodes)


def _shows_the_leader(node: BrokerProcess) -> bool:
    return "kafka_server_raftmetrics_current_leader" in scraped(node.metrics_url)


def _silent(nodes: list[BrokerProcess], leader: int) -> None:
    """A voter that is gone is the one that the leader shows as silent, and as behind."""
    gone = leader % 3 + 1
    nodes[gone - 1].kill()

    def shown(name: str) -> dict[str, float]:
        page: Samples = scraped(nodes[leader - 1].metrics_url, "/metrics")
        return {labels["voter"]: value for labels, value in page[name]}

    def is_silent() -> bool:
        silences = shown("kbroker_quorum_voter_silence_seconds")
        return silences.pop(str(gone)) > 3 and max(silences.values()) < 3

    wait_for(is_silent, "the leader to show the voter that is gone", seconds=60)
    # The quorum's own record of each half a second.
    wait_for(lambda: shown("kbroker_quorum_voter_lag")[str(gone)] >= 3, "that voter to be behind", seconds=60)


def test_times_are_those_of_a_while_ago_at_most() -> None:
    """A peak of last week would be shown for ever, or one of just now not at all."""
    now = 0.0
    times = Times(lambda: now)
    times.add(3.0)
    assert (times.count, times.seconds, times.largest) == (1, 3.0, 3.0)
    now = WINDOW_SECONDS
    times.add(1.0)
    assert times.largest == 3.0
    now = 2 * WINDOW_SECONDS
    assert times.largest == 1.0
    now = 5 * WINDOW_SECONDS
    assert times.largest == 0.0
    assert (times.count, times.seconds) == (2, 4.0)


def test_what_happens_to_a_replica_is_counted() -> None:
    """Elections and commits would seem to take no time, or the time of others."""
    now = 10.0
    stats = QuorumStats(lambda: now)
    stats.seen(RaftState.UNATTACHED, 1, -1)
    stats.seen(RaftState.PROSPECTIVE, 1, -1)
    now = 11.0
    stats.seen(RaftState.CANDIDATE, 2, -1)
    now = 12.5
    stats.seen(RaftState.LEADER, 2, 1)
    assert (stats.elections.count, stats.elections.seconds, stats.leader_changes) == (1, 2.5, 1)
    stats.appended(0, 3, 77)
    now = 13.0
    stats.appended(3, 4, 78)
    stats.committed(3)
    assert (stats.commits.count, stats.commits.seconds) == (1, 0.5)
    stats.lead_ended()
    stats.committed(4)
    assert (stats.commits.count, stats.appended_count, stats.appended_ms) == (1, 4, 78)
    stats.seen(RaftState.FOLLOWER, 2, 1)
    stats.seen(RaftState.FOLLOWER, 3, 1)
    stats.fetched(5)
    assert (stats.leader_changes, stats.fetched_count, stats.elections.count) == (2, 5, 1)


def test_changes_wait_for_each_other_and_are_timed() -> None:
    """Two decisions would be made over the same state, or the queue would seem empty while it is long."""

    async def body() -> None:
        queue, order = ChangeQueue(), []
        await queue.acquire()

        async def change(number: int) -> None:
            async with queue:
                order.append(number)

        waiting = [asyncio.ensure_future(change(each)) for each in range(3)]
        await asyncio.sleep(0.01)
        assert order == []
        queue.release()
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2]
        assert queue.count == sum(queue.waited.snapshot()[1]) == sum(queue.worked.snapshot()[1]) == 4
        assert queue.longest_wait_ns >= 10_000_000
        assert queue.waited.snapshot()[0] >= 3 * 10_000_000

    asyncio.run(body())


def _topic(*partitions: PartitionImage) -> TopicImage:
    return TopicImage("t", _topic_id, partitions)


_topic_id = random_uuid()


def test_elections_are_counted_by_where_the_leader_comes_from() -> None:
    """Lost records would go unseen, or an election of a replica that has all would be an alarm."""
    counts, image = ElectionCounts(), ClusterImage.of("c")

    def follow(delta: MetadataDelta) -> tuple[int, int, int]:
        counts.follow(image, image, delta)
        return counts.elections, counts.eligible, counts.unclean

    in_sync = PartitionImage(0, 1, 0, (1, 2, 3), (1, 2))
    none = PartitionImage(0, -1, 1, (1, 2, 3), (), elr=(2,))
    assert follow(MetadataDelta(created=(_topic(in_sync),))) == (1, 0, 0)
    by_isr = PartitionImage(0, 2, 1, (1, 2, 3), (2,))
    assert follow(MetadataDelta(changed=(TopicChange(_topic(in_sync), _topic(by_isr)),))) == (2, 0, 0)
    assert follow(MetadataDelta(changed=(TopicChange(_topic(by_isr), _topic(none)),))) == (2, 0, 0)
    by_elr = PartitionImage(0, 2, 2, (1, 2, 3), (2,))
    assert follow(MetadataDelta(changed=(TopicChange(_topic(none), _topic(by_elr)),))) == (3, 1, 0)
    lossy = PartitionImage(0, 3, 2, (1, 2, 3), (3,))
    assert follow(MetadataDelta(changed=(TopicChange(_topic(none), _topic(lossy)),))) == (4, 1, 1)
    more = MetadataDelta(changed=(TopicChange(_topic(lossy), _topic(lossy, PartitionImage(1, 1, 0, (1,), (1,)))),))
    assert follow(more) == (5, 1, 1)
