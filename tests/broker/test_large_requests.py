"""Requests that name very many things rest at each: whatever a client sends, the loop serves the others in between.

The broker runs in the test's own loop with slices of no length, in which every `await pace` rests; that is counted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

from kbroker._fast.base.slices import Slices
from kbroker.assembly.membership.choice import membership_of
from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.config.authorizer import STANDARD
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import message, request_message, response_message
from tests.broker.large_requests import GROUP, TRANSACTIONAL_ID, LargeRequest, known_names, large_requests
from tests.ports import free_port
from tests.scenarios.batches import Batch
from tests.scenarios.wire import build

ITEMS = 2_500
# Lines of Python that may run from one rest to the next.  A tight loop over all items has two to four of them each: of
# 100,000 items that is some 10 ms.
MOST_STEPS = 4 * ITEMS + 1_000
# What has a bound of its own has a small one here, so that it does not pass for what grows.
SMALL_BOUNDS = {
    "kbroker.handlers.groups.offsets.PORTION": 25,
    "kbroker.handlers.transactions.transactional_offsets.PORTION": 25,
    "kbroker.handlers.groups.groups.PORTION": 25,
    "kbroker.handlers.share.share_groups.MOST_NAMES": 100,
    "kbroker.handlers.groups.streams_groups.MOST_NAMES": 100,
    "kbroker.handlers.groups.consumer_groups.MOST_NAMES": 100,
}
# Brokers alone send it, and a share-partition has at most `share.partition.max.record.locks` batches in flight.
BOUNDED = {"WRITE_SHARE_GROUP_STATE v1 topics.partitions.state_batches"}
TOPIC = "wide"
TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE = 2, 4, 8
DELETE = 1
Values = dict[str, Any]


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(ITEMS)]


def edits(kind: int, name: str) -> Values:
    configs = [{"name": each, "config_operation": 0, "value": "1"} for each in names("no.such")]
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}]}


def produce(acks: int, name: str) -> Values:
    rows = [{"index": 0, "records": Batch().encoded()} for _ in range(ITEMS)]
    return {"acks": acks, "timeout_ms": 30_000, "topic_data": [{"name": name, "partition_data": rows}]}


REQUESTS: dict[str, tuple[str, int, Callable[[], Values]]] = {
    "produce": ("Produce", 9, lambda: produce(-1, TOPIC)),
    "produce to nowhere": ("Produce", 9, lambda: produce(1, "nowhere")),
    "produce with wrong acks": ("Produce", 9, lambda: produce(7, TOPIC)),
    "find coordinators": ("FindCoordinator", 4, lambda: {"key_type": 0, "coordinator_keys": names("group")}),
    "describe producers": (
        "DescribeProducers",
        0,
        lambda: {"topics": [{"name": TOPIC, "partition_indexes": [0] * ITEMS}]},
    ),
    "metadata": ("Metadata", 8, lambda: {"topics": [{"name": name} for name in names("nowhere")]}),
    "edit a topic": ("IncrementalAlterConfigs", 1, lambda: edits(TOPIC_RESOURCE, TOPIC)),
    "edit the broker": ("IncrementalAlterConfigs", 1, lambda: edits(BROKER_RESOURCE, "1")),
    "edit loggers": ("IncrementalAlterConfigs", 1, lambda: edits(LOGGER_RESOURCE, "1")),
    "edit topics": (
        "IncrementalAlterConfigs",
        1,
        lambda: {
            "resources": [
                {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": []} for name in names("no")
            ]
        },
    ),
    "describe topics' settings": (
        "DescribeConfigs",
        4,
        lambda: {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": name} for name in names("no")]},
    ),
    "create topics": (
        "CreateTopics",
        5,
        lambda: {
            "topics": [{"name": f"{name}!", "num_partitions": 1, "replication_factor": 1} for name in names("bad")]
        },
    ),
    "grow topics": (
        "CreatePartitions",
        2,
        lambda: {"topics": [{"name": name, "count": 3} for name in names("no")], "timeout_ms": 9999},
    ),
    "delete topics": ("DeleteTopics", 5, lambda: {"topic_names": names("no"), "timeout_ms": 9999}),
    "delete records": (
        "DeleteRecords",
        1,
        lambda: {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0} for _ in range(ITEMS)]}]
        },
    ),
    "fetch": (
        "Fetch",
        11,
        lambda: {
            "max_wait_ms": 0,
            "session_epoch": -1,
            "topics": [
                {"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 100}]} for name in names("no")
            ],
        },
    ),
    "list offsets": (
        "ListOffsets",
        7,
        lambda: {
            "replica_id": -1,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1} for _ in range(ITEMS)]}],
        },
    ),
    "ends of epochs": (
        "OffsetForLeaderEpoch",
        3,
        lambda: {
            "replica_id": -1,
            "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0} for _ in range(ITEMS)]}],
        },
    ),
    "commit offsets": (
        "OffsetCommit",
        8,
        lambda: {
            "group_id": "large",
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in names("no")
            ],
        },
    ),
    "fetch offsets": (
        "OffsetFetch",
        8,
        lambda: {"groups": [{"group_id": name, "topics": None} for name in names("group")]},
    ),
    "join a group": (
        "JoinGroup",
        5,
        lambda: {
            "group_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": b""} for name in names("protocol")],
        },
    ),
    "describe groups": ("DescribeGroups", 4, lambda: {"groups": names("group")}),
    "delete groups": ("DeleteGroups", 1, lambda: {"groups_names": names("group")}),
    "leave a group": (
        "LeaveGroup",
        3,
        lambda: {"group_id": "large", "members": [{"member_id": name} for name in names("member")]},
    ),
    "describe partitions": (
        "DescribeTopicPartitions",
        0,
        lambda: {"topics": [{"name": name} for name in names("no")], "response_partition_limit": 2000},
    ),
    "move replicas": (
        "AlterReplicaLogDirs",
        2,
        lambda: {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0] * ITEMS}]}]},
    ),
    "describe log directories": (
        "DescribeLogDirs",
        2,
        lambda: {"topics": [{"topic": name, "partitions": [0]} for name in names("no")]},
    ),
    "reassign partitions": (
        "AlterPartitionReassignments",
        0,
        lambda: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]} for name in names("no")]
        },
    ),
}


class Steps:
    """Counts the lines of Python that run from one rest to the next."""

    def __init__(self, slices: Slices) -> None:
        self.longest = 0
        self._slices = slices
        self._rests = slices.count
        self._count = 0

    def called(self, _frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        """Trace a call."""
        return self.ran

    def ran(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        """Trace what happens in it."""
        if event == "line":
            if self._slices.count != self._rests:
                self._rests, self._count = self._slices.count, 0
            self._count += 1
            self.longest = max(self.longest, self._count)
        return self.ran


class Running:
    """A broker in a loop of the test, whose work rests at every step."""

    def __init__(self, folder: Path) -> None:
        self.loop = uvloop.new_event_loop()
        self.port = free_port()
        config = BrokerConfig.from_mapping(
            {
                "log.dirs": str(folder),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "metrics.listener": "none",
                "auto.create.topics.enable": "false",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "group.initial.rebalance.delay.ms": "0",
                "authorizer.class.name": STANDARD,
                "super.users": "User:ANONYMOUS",
            }
        )
        slices = self.slices = Slices(self.loop, 0)
        self.broker = Broker(
            config, self.loop, make_membership=lambda parts: membership_of(replace(parts, slices=slices))
        )
        self.broker.node.slices = slices
        self.run(self.broker.start())
        topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
        assert self.ask("CreateTopics", 5, {"topics": [topic], "timeout_ms": 1000}).topics[0].error_code == 0
        self.topic_id = self.ask("Metadata", 12, {"topics": [{"name": TOPIC}]}).topics[0].topic_id
        self.ask("FindCoordinator", 2, {"key": GROUP})
        self.ask("FindCoordinator", 2, {"key": TRANSACTIONAL_ID, "key_type": 1})
        begun = self.ask("InitProducerId", 1, {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout_ms": 60_000})
        self.producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def ask(self, api: str, version: int, values: Values) -> Any:
        return self.run(self._ask(api, version, values))

    async def _ask(self, api: str, version: int, values: Values) -> Any:
        request = message(f"{api}Request")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(encode_request(request.api_key, version, 1, "test", build(request, values)))
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = decode_response(message(f"{api}Response"), version, bytearray(await reader.readexactly(size)))[1]
        writer.close()
        return answer

    def longest(self, api_key: int, version: int, values: Values) -> int:
        """How many lines of Python run at most without a rest while a request is served."""
        request, response = request_message(ApiKey(api_key)), response_message(ApiKey(api_key))
        frame = encode_request(api_key, version, 1, "test", build(request, values))
        steps = Steps(self.slices)
        answer = self.run(self._watched(frame, steps))
        decode_response(response, version, answer)
        return steps.longest

    async def _watched(self, frame: bytes, steps: Steps) -> bytearray:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 27)
        before = sys.gettrace()
        sys.settrace(steps.called)
        try:
            writer.write(frame)
            size = int.from_bytes(await reader.readexactly(4), "big")
        finally:
            sys.settrace(before)
        answer = bytearray(await reader.readexactly(size))
        writer.close()
        return answer

    def stop(self) -> None:
        self.run(self.broker.stop())
        self.loop.close()


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("large"))
    yield made
    made.stop()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_request_rests_at_each_thing_that_it_names(running: Running, name: str) -> None:
    """One client's request would stop all the others for as long as it takes, up to seconds."""
    api, version, values = REQUESTS[name]
    asked = values()
    before = running.slices.count
    running.ask(api, version, asked)
    assert running.slices.count - before >= ITEMS


@pytest.mark.parametrize("names_exist", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize("large", [each for each in large_requests() if str(each) not in BOUNDED], ids=str)
def test_no_array_of_any_request_is_worked_through_at_once(
    running: Running, large: LargeRequest, names_exist: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new API, or a loop without a rest in an old one, would let one client stop all the others."""
    for name, bound in SMALL_BOUNDS.items():
        monkeypatch.setattr(name, bound)
    values = dict(running.producer)
    if names_exist:
        values |= known_names(running.topic_id)
    asked = replace(large, values=values).build(ITEMS)
    assert running.longest(large.api_key, large.version, asked) <= MOST_STEPS


@pytest.mark.parametrize("count", [3, ITEMS])
def test_settings_that_are_not_there_are_refused_however_many_there_are(running: Running, count: int) -> None:
    """A request of thousands would be taken, or the one setting among them that is there."""
    unknown = [{"name": each, "config_operation": 0, "value": "1"} for each in names("no.such")[:count]]
    gone = [{"name": each, "config_operation": DELETE, "value": None} for each in names("old")[:count]]
    good = {"name": "retention.ms", "config_operation": 0, "value": "77000"}

    def code(*configs: Values) -> int:
        row = {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configs": list(configs)}
        return int(running.ask("IncrementalAlterConfigs", 1, {"resources": [row]}).responses[0].error_code)

    def own() -> str:
        row = {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configuration_keys": ["retention.ms"]}
        (entry,) = running.ask("DescribeConfigs", 4, {"resources": [row]}).results[0].configs
        return str(entry.value)

    assert code({**good, "value": "50000"}) == 0
    assert code(*gone, *unknown, good) == ErrorCode.INVALID_CONFIG
    assert code(*gone, good, gone[0]) == ErrorCode.INVALID_REQUEST
    assert own() == "50000"
    assert code(*gone, good) == 0
    assert own() == "77000"
