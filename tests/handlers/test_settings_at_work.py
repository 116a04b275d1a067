"""What clients see of settings: one broker whose settings are all out of the ordinary, asked over the wire."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session

SETTINGS = {
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "false",
    "default.replication.factor": "1",
    "fetch.max.bytes": "2048",
    "group.consumer.assignors": "range",
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "group.max.session.timeout.ms": "20000",
    "group.min.session.timeout.ms": "7000",
    "group.max.size": "1",
    "group.share.heartbeat.interval.ms": "6000",
    "group.share.max.share.sessions": "1",
    "group.share.max.size": "1",
    "kbroker.api.versions": "ListGroups:0-3",
    "max.request.partition.size.limit": "3",
    "num.partitions": "4",
    "socket.request.max.bytes": "100000",
    "telemetry.max.bytes": "100",
    "transaction.max.timeout.ms": "5000",
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    broker = BrokerProcess(Path(tmp_path_factory.mktemp("settings")), SETTINGS)
    broker.start()
    yield broker.port
    broker.kill()


@pytest.fixture
def session(port: int) -> Iterator[Session]:
    opened = Session(port)
    yield opened
    opened.close()


def test_topics_are_made_and_deleted_as_the_settings_allow(session: Session) -> None:
    """A misspelt name would become a topic, or one be deleted where that is switched off."""
    asked = session.quietly("Metadata", 9, topics=[{"name": "nowhere"}], allow_auto_topic_creation=True)
    assert asked.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = {"name": "made", "num_partitions": -1, "replication_factor": -1}
    made = session.quietly("CreateTopics", 7, topics=[topic], timeout_ms=9_000).topics[0]
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 1)
    deleted = session.quietly("DeleteTopics", 5, topic_names=["made"], timeout_ms=9_000).responses[0]
    assert deleted.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    described = session.quietly("DescribeTopicPartitions", 0, topics=[{"name": "made"}], response_partition_limit=2_000)
    assert len(described.topics[0].partitions) == 3
    assert described.next_cursor.partition_index == 3


def test_a_fetch_is_given_no_more_than_the_broker_allows(session: Session) -> None:
    """A consumer that asks for much would take the memory that the operator wanted to keep."""
    session.create("big", 3)
    records = Batch([(None, b"x" * 1_500)]).encoded()
    rows = [{"index": index, "records": records} for index in range(3)]
    session.quietly("Produce", 9, acks=1, timeout_ms=9_000, topic_data=[{"name": "big", "partition_data": rows}])
    asked = [{"partition": index, "partition_max_bytes": 1 << 20} for index in range(3)]
    answer = session.quietly(
        "Fetch", 11, max_bytes=1 << 20, min_bytes=1, topics=[{"topic": "big", "partitions": asked}]
    )
    sizes = [len(partition.records or b"") for partition in answer.responses[0].partitions]
    assert sizes[0] == len(records) and sum(sizes) <= 2_048


@pytest.mark.parametrize(("timeout_ms", "is_right"), [(6_999, False), (7_000, True), (20_000, True), (20_001, False)])
def test_sessions_of_classic_groups_lie_within_bounds(session: Session, timeout_ms: int, is_right: bool) -> None:
    """A member that is dead would keep its partitions for longer than the operator allows."""
    answer = session.quietly(
        "JoinGroup",
        4,
        group_id=f"classic-{timeout_ms}",
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=9_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    right = ErrorCode.MEMBER_ID_REQUIRED
    assert answer.error_code == (right if is_right else ErrorCode.INVALID_SESSION_TIMEOUT)


def test_a_group_is_full_with_the_members_that_it_may_have(session: Session) -> None:
    """A runaway deployment would fill a group without end."""

    def join(group: str) -> Any:
        return session.quietly(
            "JoinGroup",
            3,
            group_id=group,
            session_timeout_ms=9_000,
            rebalance_timeout_ms=300,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )

    session.coordinator("full")
    assert join("full").error_code == 0
    assert join("full").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_consumer_groups_have_the_assignors_that_are_named(session: Session) -> None:
    """Members would be given an assignor that the operator has switched off."""
    session.coordinator("modern")

    def beat(assignor: str) -> int:
        answer = session.quietly(
            "ConsumerGroupHeartbeat",
            1,
            group_id="modern",
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=9_000,
            subscribed_topic_names=["big"],
            server_assignor=assignor,
            topic_partitions=[],
        )
        return int(answer.error_code)

    assert beat("uniform") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert beat("range") == 0


def test_kinds_of_groups_that_are_switched_off_are_not_served(session: Session) -> None:
    """Members of such a group would join it all the same."""
    session.coordinator("streams")
    answer = session.quietly(
        "StreamsGroupHeartbeat",
        0,
        group_id="streams",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=9_000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        topology={"epoch": 0, "subtopologies": []},
        process_id="p",
        client_tags=[],
        task_offsets=[],
        task_end_offsets=[],
    )
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_share_groups_keep_to_their_limits(session: Session) -> None:
    """Share groups would have more members and sessions than the operator allows."""
    session.coordinator("shared")
    members = [str(uuid.uuid4()) for _ in range(2)]
    answers = [
        session.quietly(
            "ShareGroupHeartbeat",
            1,
            group_id="shared",
            member_id=member,
            member_epoch=0,
            subscribed_topic_names=["big"],
        )
        for member in members
    ]
    assert [each.error_code for each in answers] == [0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert answers[0].heartbeat_interval_ms == 6_000

    def open_session(opened: Session, member: str) -> int:
        answer = opened.quietly(
            "ShareFetch",
            1,
            group_id="shared",
            member_id=member,
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1_000,
            max_records=1,
            batch_size=1,
            topics=[],
            forgotten_topics_data=[],
        )
        return int(answer.error_code)

    # A connection has one session, and this broker holds one in all.
    with session.second() as other:
        assert open_session(session, members[0]) == 0
        assert open_session(other, members[1]) == ErrorCode.SHARE_SESSION_LIMIT_REACHED


@pytest.mark.parametrize(("timeout_ms", "is_right"), [(5_000, True), (5_001, False)])
def test_transactions_last_no_longer_than_allowed(session: Session, timeout_ms: int, is_right: bool) -> None:
    """A forgotten transaction would hold up readers for as long as its client said."""
    session.quietly("FindCoordinator", 4, key_type=1, coordinator_keys=["t"])
    answer = session.quietly(
        "InitProducerId",
        3,
        transactional_id=f"t-{timeout_ms}",
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert (answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT) != is_right


def test_apis_telemetry_and_frames_are_limited(session: Session, port: int) -> None:
    """Clients would be offered what is switched off, push more than is wanted, or send frames of any size."""
    apis = session.quietly("ApiVersions", 3, client_software_name="a", client_software_version="1").api_keys
    assert {(each.min_version, each.max_version) for each in apis if each.api_key == 16} == {(0, 3)}
    subscription = session.quietly("GetTelemetrySubscriptions", 0, client_instance_id=uuid.uuid4().bytes)
    assert subscription.telemetry_max_bytes == 100
    large = Session(port)
    large.wire.send_body(3, 1, bytes(100_001))
    assert large.ask("after", "ApiVersions", 0) is None and large.answers == {"after": "connection closed"}
    large.close()
