"""Lanes of a mirror: killed at any point and run again, each record comes once; what they cannot keep, they refuse."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientError
from kbroker.client.list_offsets import list_offsets
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.lanes import LaneResult, LaneState, read_state, state_path
from kbroker.replay.mirror import Mirror, MirrorRequest, mirror_lane
from kbroker.types import LATEST
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.replay.moved_topics import assert_same, held, produce

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"retention.ms": "-1"}


def run(request: MirrorRequest) -> list[LaneResult]:
    job = Mirror(request)
    with job.held():
        return [mirror_lane(job.read, request.job(), job.target, (lane, lane.stop)) for lane in job.plan()]


def end_of(bootstrap: str, topic: str) -> int:
    """How many records the topic's two partitions have; 0 while there is no topic."""
    with Cluster(bootstrap) as cluster:
        try:
            return sum(
                found.offset
                for found in list_offsets(cluster, dict.fromkeys([(topic, 0), (topic, 1)], LATEST)).values()
            )
        except ClientError:
            return 0


@pytest.mark.timeout(600)
def test_a_mirror_killed_at_any_point_writes_each_record_once(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """Each crash of a mirror would lose records, or write them twice, and nobody would know which."""
    chance = random.Random(3)
    topic = Admin(kbroker_broker.bootstrap).create_topic("lane", 2, KEEP)
    total, kills_in_the_middle = 0, 0

    def produce_more() -> None:
        nonlocal total
        produce(kbroker_broker.bootstrap, topic, 2, total, 60_000)
        total += 60_000

    produce_more()
    command = [sys.executable, "-m", "tests.replay.lane_process", kbroker_broker.bootstrap, target.bootstrap, topic]
    command += [str(tmp_path / "state")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = 0
    for _ in range(12):
        process = subprocess.Popen([*command, str(chance.choice([150, 700, 5000]))], cwd=ROOT, env=environ)
        goal = before + chance.randrange(1, 6000)

        def reached(goal: int = goal, process: subprocess.Popen[bytes] = process) -> bool:
            return process.poll() is not None or end_of(target.bootstrap, f"copy-{topic}") >= goal

        wait_for(reached, f"{goal} records")
        process.kill()
        status = process.wait(60)
        assert status in (0, -signal.SIGKILL)
        if status:
            kills_in_the_middle += 1
        else:
            # It was through before it could be killed.
            produce_more()
        before = end_of(target.bootstrap, f"copy-{topic}")
        if kills_in_the_middle == 6:
            break
    assert kills_in_the_middle >= 3
    subprocess.run([*command, "5000"], cwd=ROOT, env=environ, check=True, timeout=250)
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, f"copy-{topic}"), 2)
    for partition in range(2):
        state = read_state(tmp_path / "state", f"copy-{topic}", partition)
        assert state is not None
        assert state.map == [[0, total // 2, 0, total // 2]]


def test_a_second_run_writes_only_what_is_new(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """A mirror that runs every hour would copy everything again."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("again", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 500)
    request = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path), [topic], slice_records=70)
    assert sum(one.written for one in run(request)) == 500
    produce(kbroker_broker.bootstrap, topic, 2, 500, 300)
    assert sum(one.written for one in run(request)) == 300
    assert sum(one.written for one in run(request)) == 0
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, topic), 2)


def test_records_of_others_are_not_taken_for_its_own(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """Records would be left out of the mirror, as many as somebody else wrote into it."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("foreign", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 100)
    request = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path), [topic])
    run(request)
    produce(target.bootstrap, topic, 2, 50_000, 10)
    produce(kbroker_broker.bootstrap, topic, 2, 100, 100)
    with pytest.raises(LoadError, match="that this job did not write"):
        run(request)
    assert len(held(target.bootstrap, topic, 0).values) == 55


def test_offsets_that_are_gone_are_an_error_or_a_gap(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """Records that retention took before the mirror came would be missing without a word."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = Admin(kbroker_broker.bootstrap).create_topic("gone", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 100)
    request = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path), [topic])
    run(request)
    produce(kbroker_broker.bootstrap, topic, 2, 100, 100)
    client = AdminClient({"bootstrap.servers": kbroker_broker.bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 80)]).values():
        future.result(30)
    with pytest.raises(LoadError, match=r"offsets 50 to 79 of .*-0 .* are gone.*--allow-gaps"):
        run(request)
    allowed = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path), [topic], allow_gaps=True)
    assert sorted(one.written for one in run(allowed)) == [20, 50]
    state = read_state(tmp_path, topic, 0)
    assert state is not None
    assert [gap[:2] for gap in state.gaps] == [[50, 80]]
    assert state.map == [[0, 50, 0, 50], [80, 100, 50, 20]]


def test_topics_are_made_like_the_sources(kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path) -> None:
    """A compacted topic would be mirrored into one that forgets after a week, or partitions would not fit."""
    import confluent_kafka.admin as api

    topic = Admin(kbroker_broker.bootstrap).create_topic("made", 3, {"cleanup.policy": "compact", **KEEP})
    run(MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path / "one"), [topic]))
    kafka: Any = api
    client = kafka.AdminClient({"bootstrap.servers": target.bootstrap})
    assert len(client.list_topics(timeout=30).topics[topic].partitions) == 3
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic)
    entries = client.describe_configs([resource])[resource].result(30)
    assert entries["cleanup.policy"].value == "compact"
    assert entries["retention.ms"].value == "-1"
    with pytest.raises(LoadError, match="one cluster"):
        run(MirrorRequest(target.bootstrap, target.bootstrap, str(tmp_path / "two"), [topic]))


def test_a_map_grows_by_ranges() -> None:
    """The map from source to target offsets would grow with each slice, or be wrong behind compacted records."""
    state = LaneState("job", 10, 0)
    state.written(20, 10)
    state.written(25, 5)
    state.written(40, 3)
    state.written(50, 10)
    state.written(60, 10)
    state.written(70, 0)
    assert state.map == [[10, 25, 0, 15], [25, 40, 15, 3], [40, 60, 18, 20]]
    assert (state.position, state.target_next, state.records) == (70, 38, 38)


def test_what_was_written_after_the_last_state_is_recognised(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """A kill between the last acknowledgement and the state would write a whole slice twice."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("unnoted", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 100)
    request = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, str(tmp_path), [topic])
    run(request)
    notes = [state_path(tmp_path, topic, partition) for partition in range(2)]
    before = [path.read_bytes() for path in notes]
    produce(kbroker_broker.bootstrap, topic, 2, 100, 300)
    run(request)
    after = [path.read_bytes() for path in notes]
    for path, content in zip(notes, before, strict=True):
        path.write_bytes(content)
    produce(kbroker_broker.bootstrap, topic, 2, 400, 40)
    assert [(one.found, one.written) for one in run(request)] == [(150, 20), (150, 20)]
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, topic), 2)
    assert after != before
