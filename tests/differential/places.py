"""What a request finds at the broker: topics with records, and of its own a partition, a group with a member, a
transaction, a session.

A `Start` prepares one place for one request, so that what one request does is not seen by the next, and a single
difference stays a single one.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.compat.waiting import wait_for
from tests.differential.values import TOPIC_ID, live
from tests.scenarios.session import Session

PROTOCOLS = [{"name": "range", "metadata": b"m"}]
UNTIL_READY = "a member has what it asked for"


@dataclass(slots=True)
class Place:
    """Of one request.  `topic` has two partitions of five records, or where the API changes partitions one for each."""

    session: Session
    name: str
    topic: str
    topic_id: bytes
    other_topic: str
    partition: int = 0
    group: str = ""
    transactional_id: str = ""
    new_topic: str = ""
    member_id: str = ""
    generation: int = 1
    member_epoch: int = 0
    share_session_epoch: int = 0
    producer_id: int = 1 << 40
    producer_epoch: int = 0
    client_instance_id: bytes = bytes(range(1, 17))
    subscription_id: int = 1
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = f"group-{self.name}"
        self.member_id = f"member-{zlib.crc32(self.name.encode()):08x}"
        self.transactional_id = f"txn-{self.name}"
        self.new_topic = f"new-{self.name}"


Prepare = Callable[[Place], None]


def nothing(place: Place) -> None:
    """The place as it is."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is prepared for a request, and the values that go with it.  Not `whole`: without changes of sizes."""

    name: str = ""
    prepare: Prepare = nothing
    values: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True


def classic_member(place: Place) -> None:
    """A stable group of one member, which answers a rebalance too late."""
    values = {
        "group_id": place.group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1500,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    }

    def joined() -> bool:
        found = place.session.quietly("JoinGroup", 3, **values)
        assert found.error_code == 0, found
        place.member_id, place.generation = found.member_id, found.generation_id
        assignments = [{"member_id": place.member_id, "assignment": b"a"}]
        mine = {"group_id": place.group, "generation_id": place.generation, "member_id": place.member_id}
        return not place.session.quietly("SyncGroup", 2, **mine, assignments=assignments).error_code

    # Where this process is held up between the two, the group has given the member up by then.
    wait_for(joined, "a stable group of one member")
    place.session.normal.text("member_id", place.member_id)


def committed(place: Place) -> None:
    """A group without members that has committed."""
    rows = [{"partition_index": place.partition, "committed_offset": 3, "committed_metadata": "m"}]
    values = {"group_id": place.group, "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": place.topic, "partitions": rows}]
    found = place.session.quietly("OffsetCommit", 7, **values, topics=topics)
    assert found.topics[0].partitions[0].error_code == 0, found


def modern_member(place: Place) -> None:
    """A member of a consumer group that has its partitions."""
    _until_assigned(
        place, "ConsumerGroupHeartbeat", 1, rebalance_timeout_ms=30_000, subscribed_topic_names=[place.topic]
    )


def share_member(place: Place) -> None:
    """A member of a share group, which begins with the first record and has its partitions."""
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": place.group, "configs": [config]}
    found = place.session.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    assert found.responses[0].error_code == 0, found
    _until_assigned(place, "ShareGroupHeartbeat", 1, subscribed_topic_names=[place.topic])


def _until_assigned(place: Place, api: str, version: int, **values: Any) -> None:
    mine = {"group_id": place.group, "member_id": place.member_id, "instance_id": None}
    if api == "ShareGroupHeartbeat":
        del mine["instance_id"]
    else:
        values["topic_partitions"] = []
    epoch = 0

    def assigned() -> bool:
        nonlocal epoch
        found = place.session.quietly(api, version, **mine, member_epoch=epoch, **(values if not epoch else {}))
        assert found.error_code in (0, 14, 15, 16), found
        epoch = found.member_epoch if not found.error_code else epoch
        return found.assignment is not None and bool(found.assignment.topic_partitions)

    if api == "ConsumerGroupHeartbeat":
        # A heartbeat between the first and the last has no change to tell.
        mine |= {"rebalance_timeout_ms": 30_000}
        values.pop("rebalance_timeout_ms")
    wait_for(assigned, UNTIL_READY)
    place.member_epoch = epoch


def share_session(place: Place) -> None:
    """A member that has acquired the five records of its partition."""
    share_member(place)
    topics = [{"topic_id": place.topic_id, "partitions": [{"partition_index": place.partition}]}]
    fetch = {
        "group_id": place.group,
        "member_id": place.member_id,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
    }
    fetch |= {"max_records": 100, "batch_size": 100}
    epoch = 0

    def acquired() -> bool:
        nonlocal epoch
        asked = topics if not epoch else []
        found = place.session.quietly("ShareFetch", 1, **fetch, share_session_epoch=epoch, topics=asked)
        assert found.error_code == 0, found
        epoch += 1
        rows = [row for topic in found.responses for row in topic.partitions]
        return any(row.acquired_records for row in rows)

    # The coordinator's topic may still have to be made.
    wait_for(acquired, "records are acquired", seconds=90)
    place.share_session_epoch = epoch


def share_offsets(place: Place) -> None:
    """A share group without members that has start offsets."""
    share_member(place)
    mine = {"group_id": place.group, "member_id": place.member_id, "member_epoch": -1}
    assert place.session.quietly("ShareGroupHeartbeat", 1, **mine).error_code == 0
    rows = [{"partition_index": place.partition, "start_offset": 2}]
    topics = [{"topic_name": place.topic, "partitions": rows}]
    found = place.session.quietly("AlterShareGroupOffsets", 0, group_id=place.group, topics=topics)
    assert found.error_code == 0, found


def share_state(place: Place) -> None:
    """The state of one partition of a share group."""
    rows = [{"partition": place.partition, "state_epoch": 1, "start_offset": 1}]
    topics = [{"topic_id": place.topic_id, "partitions": rows}]
    uuid = base64.urlsafe_b64encode(place.topic_id).decode().rstrip("=")
    key = f"{place.group}:{uuid}:{place.partition}"

    def initialized() -> bool:
        # The first to ask where the coordinator is has its topic made, whose partitions have to be loaded, too.
        place.session.quietly("FindCoordinator", 6, key_type=2, coordinator_keys=[key])
        found = place.session.quietly("InitializeShareGroupState", 0, group_id=place.group, topics=topics)
        return not found.results[0].partitions[0].error_code

    wait_for(initialized, "the state of a share-partition", seconds=90)


def producer(place: Place) -> None:
    """A transactional producer without a transaction."""
    values = {"transactional_id": place.transactional_id, "transaction_timeout_ms": 60_000}
    more = {"producer_id": -1, "producer_epoch": -1}
    found = place.session.quietly("InitProducerId", 4, **values, **more)
    assert found.error_code == 0, found
    place.producer_id, place.producer_epoch = found.producer_id, found.producer_epoch
    place.session.normal.name("producer", found.producer_id)


def transaction(place: Place) -> None:
    """A transaction with one partition, in which nothing is written."""
    producer(place)
    topics = [{"name": place.topic, "partitions": [place.partition]}]
    found = place.session.quietly(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=place.transactional_id,
        v3_and_below_producer_id=place.producer_id,
        v3_and_below_producer_epoch=place.producer_epoch,
        v3_and_below_topics=topics,
    )
    rows = found.results_by_topic_v3_and_below[0].results_by_partition
    assert rows[0].partition_error_code == 0, found


def offsets_in_transaction(place: Place) -> None:
    """A transaction with the group's offsets."""
    producer(place)
    mine = {"transactional_id": place.transactional_id, "group_id": place.group}
    producer_values = {"producer_id": place.producer_id, "producer_epoch": place.producer_epoch}
    found = place.session.quietly("AddOffsetsToTxn", 3, **mine, **producer_values)
    assert found.error_code == 0, found


def offsets_of_member(place: Place) -> None:
    """The same for a group with a member."""
    classic_member(place)
    offsets_in_transaction(place)


def own_topic(place: Place) -> None:
    """A topic of its own, of two partitions."""
    name = f"own-{place.name}"
    place.topic_id = place.session.create(name, 2)
    place.topic = name
    place.made.append(name)


def subscription(place: Place) -> None:
    """A client that has its telemetry subscription."""
    found = place.session.quietly("GetTelemetrySubscriptions", 0, client_instance_id=bytes(16))
    assert found.error_code == 0, found
    place.client_instance_id, place.subscription_id = bytes(found.client_instance_id), found.subscription_id
    place.session.normal.name("topic-id", place.client_instance_id)
    place.session.normal.name("subscription", place.subscription_id)


NEW, STABLE = Start("new"), Start("member", classic_member)
AS_MEMBER = {"member_id": live("member_id"), "generation_id_or_member_epoch": live("generation")}
AGAIN = {"producer_id": live("producer_id"), "producer_epoch": live("producer_epoch")}
ACKNOWLEDGED = [{"first_offset": 0, "last_offset": 4, "acknowledge_types": [1]}]
STARTS: dict[str, tuple[Start, ...]] = {
    "JoinGroup": (NEW, Start("member", classic_member, {"member_id": live("member_id")}, whole=False)),
    "SyncGroup": (STABLE,),
    "Heartbeat": (STABLE,),
    "LeaveGroup": (STABLE,),
    "DescribeGroups": (STABLE,),
    "ListGroups": (STABLE,),
    "ListTransactions": (Start("open", transaction),),
    "DeleteGroups": (Start("committed", committed), Start("member", classic_member, whole=False)),
    "OffsetCommit": (NEW, Start("member", classic_member, AS_MEMBER)),
    "OffsetFetch": (Start("committed", committed),),
    "OffsetDelete": (Start("committed", committed), Start("member", classic_member, whole=False)),
    "ConsumerGroupHeartbeat": (
        Start("joins", values={"rebalance_timeout_ms": 30_000}),
        Start("member", modern_member, {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": None}),
        Start("classic group", classic_member, whole=False),
    ),
    "ConsumerGroupDescribe": (Start("member", modern_member),),
    "ShareGroupHeartbeat": (
        Start("joins"),
        Start("member", share_member, {"subscribed_topic_names": None}, whole=False),
    ),
    "ShareGroupDescribe": (Start("member", share_member),),
    "ShareFetch": (
        Start("opens", share_member, {"max_wait_ms": 200}),
        Start("goes on", share_session, {"acknowledgement_batches": ACKNOWLEDGED}, whole=False),
    ),
    "ShareAcknowledge": (Start("goes on", share_session),),
    "DescribeShareGroupOffsets": (Start("offsets", share_offsets),),
    "AlterShareGroupOffsets": (NEW, Start("offsets", share_offsets, whole=False)),
    "DeleteShareGroupOffsets": (Start("offsets", share_offsets),),
    "InitializeShareGroupState": (NEW, Start("state", share_state, whole=False)),
    "ReadShareGroupState": (Start("state", share_state),),
    "WriteShareGroupState": (Start("state", share_state, {"state_epoch": 1, "start_offset": 1}),),
    "DeleteShareGroupState": (Start("state", share_state),),
    "ReadShareGroupStateSummary": (Start("state", share_state),),
    "InitProducerId": (NEW, Start("producer", producer, AGAIN, whole=False)),
    "AddPartitionsToTxn": (Start("producer", producer), Start("open", transaction, whole=False)),
    "AddOffsetsToTxn": (Start("producer", producer),),
    "TxnOffsetCommit": (
        Start("open", offsets_in_transaction),
        Start("not open", producer, whole=False),
        Start("member", offsets_of_member, {"generation_id": live("generation"), "member_id": live("member_id")}),
    ),
    "EndTxn": (Start("open", transaction), Start("not open", producer, whole=False)),
    "DescribeTransactions": (Start("open", transaction),),
    "DeleteTopics": (
        Start("by name", own_topic),
        Start("by id", own_topic, {"name": None, "topic_id": TOPIC_ID}, whole=False),
    ),
    "CreatePartitions": (Start("", own_topic),),
    "PushTelemetry": (Start("subscribed", subscription),),
    "GetTelemetrySubscriptions": (Start("subscribed", subscription), NEW),
    "Fetch": (
        Start("", nothing),
        Start("session", nothing, {"session_epoch": 0}, whole=False),
    ),
    "Metadata": (
        Start("by name"),
        Start("by id", values={"name": None, "topic_id": TOPIC_ID}, whole=False),
    ),
}
ONE = (Start(),)
# From which version on a start makes sense.
SINCE = {
    ("DeleteTopics", "by id"): 6,
    ("Metadata", "by id"): 10,
    ("InitProducerId", "producer"): 3,
    ("Fetch", "session"): 7,
    ("TxnOffsetCommit", "member"): 3,
    ("OffsetCommit", "member"): 1,
}
# A partition for each request, as it changes what lies there.
CHANGES_PARTITIONS = frozenset({"Produce", "DeleteRecords", "WriteTxnMarkers", "EndTxn", "AddPartitionsToTxn"})


def starts(api: str, version: int) -> tuple[Start, ...]:
    """What requests of this API are asked at."""
    return tuple(start for start in STARTS.get(api, ONE) if version >= SINCE.get((api, start.name), 0))


def _offsets(place: Place) -> dict[str, Any]:
    return {"group_id": place.group, "topics": None}


def _group(place: Place) -> dict[str, Any]:
    return {"groups": [place.group]}


def _group_ids(place: Place) -> dict[str, Any]:
    return {"group_ids": [place.group]}


def _ends(place: Place) -> dict[str, Any]:
    rows = [{"partition_index": place.partition, "timestamp": time} for time in (-1,)]
    return {"replica_id": -1, "topics": [{"name": place.topic, "partitions": rows}]}


def _begins(place: Place) -> dict[str, Any]:
    rows = [{"partition_index": place.partition, "timestamp": -2}]
    return {"replica_id": -1, "topics": [{"name": place.topic, "partitions": rows}]}


def _transactions(place: Place) -> dict[str, Any]:
    return {"transactional_ids": [place.transactional_id]}


def _summary(place: Place) -> dict[str, Any]:
    rows = [{"partition": place.partition, "leader_epoch": 0}]
    return {"group_id": place.group, "topics": [{"topic_id": place.topic_id, "partitions": rows}]}


# What shows the state that a request has left behind.
PROBES: dict[str, tuple[tuple[str, int, Callable[[Place], dict[str, Any]]], ...]] = {
    "OffsetCommit": (("OffsetFetch", 5, _offsets),),
    "OffsetDelete": (("OffsetFetch", 5, _offsets),),
    "DeleteGroups": (("OffsetFetch", 5, _offsets), ("DescribeGroups", 5, _group)),
    "JoinGroup": (("DescribeGroups", 5, _group),),
    "SyncGroup": (("DescribeGroups", 5, _group),),
    "Heartbeat": (("DescribeGroups", 5, _group),),
    "LeaveGroup": (("DescribeGroups", 5, _group),),
    "ConsumerGroupHeartbeat": (("ConsumerGroupDescribe", 1, _group_ids),),
    "ShareGroupHeartbeat": (("ShareGroupDescribe", 1, _group_ids),),
    "TxnOffsetCommit": (("OffsetFetch", 7, lambda place: {**_offsets(place), "require_stable": False}),),
    "AddPartitionsToTxn": (("DescribeTransactions", 0, _transactions),),
    "AddOffsetsToTxn": (("DescribeTransactions", 0, _transactions),),
    "Produce": (("ListOffsets", 7, _ends),),
    "DeleteRecords": (("ListOffsets", 7, _ends), ("ListOffsets", 7, _begins)),
    "WriteShareGroupState": (("ReadShareGroupState", 0, _summary),),
    "InitializeShareGroupState": (("ReadShareGroupState", 0, _summary),),
    "DeleteShareGroupState": (("ReadShareGroupState", 0, _summary),),
}
