"""A client that asks for much at once: hundreds of topics, partitions, groups or keys in one request, most of which are
not there.

Each is answered, once, with an error that says so, or with none; nobody else waits meanwhile for longer than a turn may
take, which is judged where work is measured (`work.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import IN_DOUBT, NOT_NOW, Client
from tests.simulation.coordination import NOT_HERE
from tests.simulation.records import encode_batch

if TYPE_CHECKING:
    from tests.simulation.world import World

Key = tuple[str, int] | str
LATEST = -1
TOPIC_RESOURCE = 2
SIZES = (50, 300, 1500)
PER_TOPIC = 100
UNKNOWN = (
    frozenset(
        {
            ErrorCode.NONE,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        }
    )
    | NOT_HERE
    | NOT_NOW
    | IN_DOUBT
)
"""What may be said of something that is not there, or not here."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A request for many: how it is made of so many partitions, or names, and which rows its answer has."""

    version: int
    make: Callable[[Sequence[Any]], Any]
    rows: Callable[[Any], Iterable[tuple[Key, int]]]
    by_name: bool = False
    """Whether it is about names, not about partitions."""


def _by_topic(keys: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, number in keys:
        found.setdefault(name, []).append(number)
    return found


def _rows(
    topics: str, name: str = "name", number: str = "partition_index", partitions: str = "partitions"
) -> Callable[[Any], Iterable[tuple[Key, int]]]:
    """The rows of an answer that has topics with partitions."""

    def rows(answer: Any) -> Iterable[tuple[Key, int]]:
        for topic in getattr(answer, topics):
            for row in getattr(topic, partitions):
                yield (getattr(topic, name), getattr(row, number)), row.error_code

    return rows


def _names(results: str, name: str) -> Callable[[Any], Iterable[tuple[Key, int]]]:
    def rows(answer: Any) -> Iterable[tuple[Key, int]]:
        return [(getattr(row, name), row.error_code) for row in getattr(answer, results)]

    return rows


def _list_offsets(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.ListOffsetsRequest
    return request(
        replica_id=-1,
        topics=[
            request.ListOffsetsTopic(
                name=name,
                partitions=[request.ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in numbers],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _epochs(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.OffsetForLeaderEpochRequest
    return request(
        replica_id=-1,
        topics=[
            request.OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    request.OffsetForLeaderPartition(partition=each, current_leader_epoch=-1, leader_epoch=1)
                    for each in numbers
                ],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _commit(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.OffsetCommitRequest
    return request(
        group_id="bulk",
        generation_id_or_member_epoch=-1,
        topics=[
            request.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    request.OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in numbers
                ],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _committed(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.OffsetFetchRequest
    topics = [
        request.OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
        for name, numbers in _by_topic(keys).items()
    ]
    return request(group_id="bulk", topics=topics)


def _delete_records(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.DeleteRecordsRequest
    return request(
        timeout_ms=1000,
        topics=[
            request.DeleteRecordsTopic(
                name=name,
                partitions=[request.DeleteRecordsPartition(partition_index=each, offset=0) for each in numbers],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _producers(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.DescribeProducersRequest
    rows = [request.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in _by_topic(keys).items()]
    return request(topics=rows)


def _fetch(keys: Sequence[tuple[str, int]]) -> Any:
    request = wire.FetchRequest
    return request(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_epoch=-1,
        topics=[
            request.FetchTopic(
                topic=name,
                partitions=[
                    request.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1) for each in numbers
                ],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _produce(keys: Sequence[tuple[str, int]]) -> Any:
    """To partitions that are not there: nothing of it may be stored."""
    request = wire.ProduceRequest
    data = encode_batch([b"nowhere"], 0)
    return request(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            request.TopicProduceData(
                name=name,
                partition_data=[request.PartitionProduceData(index=each, records=data) for each in numbers],
            )
            for name, numbers in _by_topic(keys).items()
        ],
    )


def _configs(names: Sequence[str]) -> Any:
    request = wire.DescribeConfigsRequest
    return request(
        resources=[
            request.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )


def _create(names: Sequence[str]) -> Any:
    request = wire.CreateTopicsRequest
    rows = [request.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return request(topics=rows, timeout_ms=1000, validate_only=True)


KINDS = (
    Kind(7, _list_offsets, _rows("topics")),
    Kind(4, _epochs, _rows("topics", "topic", "partition")),
    Kind(7, _commit, _rows("topics")),
    Kind(7, _committed, _rows("topics")),
    Kind(2, _delete_records, _rows("topics")),
    Kind(0, _producers, _rows("topics")),
    Kind(12, _fetch, _rows("responses", "topic")),
    Kind(9, _produce, _rows("responses", "name", "index", "partition_responses")),
    Kind(
        9,
        lambda names: wire.MetadataRequest(
            topics=[wire.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        ),
        _names("topics", "name"),
        by_name=True,
    ),
    Kind(4, _configs, _names("results", "resource_name"), by_name=True),
    Kind(5, lambda names: wire.DescribeGroupsRequest(groups=list(names)), _names("groups", "group_id"), by_name=True),
    Kind(
        2, lambda names: wire.DeleteGroupsRequest(groups_names=list(names)), _names("results", "group_id"), by_name=True
    ),
    Kind(
        4,
        lambda names: wire.FindCoordinatorRequest(key_type=0, coordinator_keys=list(names)),
        _names("coordinators", "key"),
        by_name=True,
    ),
    Kind(
        0,
        lambda names: wire.DescribeTransactionsRequest(transactional_ids=list(names)),
        _names("transaction_states", "transactional_id"),
        by_name=True,
    ),
    Kind(5, _create, _names("topics", "name"), by_name=True),
)


class Bulk(Client):
    """One request for many after the other, each to any broker."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests
        self.kinds: Sequence[Kind] = KINDS
        self.sizes: Sequence[int] = SIZES

    async def run(self) -> None:
        rng = self.rng
        while self.requests > 0:
            self.requests -= 1
            connection = await self.connect(rng.choice(list(self.world.nodes)))
            if connection is None:
                await self.try_later()
                continue
            kind, size = rng.choice(self.kinds), rng.choice(self.sizes)
            if kind.by_name:
                keys: list[Any] = [f"not-there-{number}" for number in range(size)]
            else:
                keys = [(f"not-there-{number // PER_TOPIC}", number % PER_TOPIC) for number in range(size)]
            answer = await connection.answer(kind.make(keys), kind.version)
            if answer is not None:
                self.judge_rows(type(answer).__name__, keys, list(kind.rows(answer)), getattr(answer, "error_code", 0))
            if not connection.gone:
                connection.finish(rng)
            await self.pause()

    def judge_rows(self, what: str, asked: Sequence[Key], told: Sequence[tuple[Key, int]], code: int = 0) -> None:
        """Each that was asked for has one row, and none is there."""
        if not told and code in UNKNOWN - {0}:
            return  # Of the request as a whole.
        if len(told) != len(asked) or {key for key, _ in told} != set(asked):
            self.judge.fail(f"{self.name}: {what} has {len(told)} rows, where {len(asked)} were asked for")
        for key, code in told:
            if code not in UNKNOWN:
                self.judge.fail(f"{self.name}: {what} says {ErrorCode(code).name} of {key}")


__all__ = ["Bulk"]
