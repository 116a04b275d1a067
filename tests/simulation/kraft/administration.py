"""What an active controller of the model answers clients: topics, their settings, their replicas, their leaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.cluster.partitions import elect
from kbroker.cluster.reassignments import call_off, reassign
from kbroker.cluster.requests import ElectionType
from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaError
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.schemas import wire
from tests.simulation.kraft.deciding import Batch
from tests.simulation.kraft.state import (
    MIN_IN_SYNC,
    TOPIC_RESOURCE,
    TopicState,
    partition_record,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


class RefusedError(Exception):
    """A part of a request is not done."""

    def __init__(self, code: ErrorCode, text: str = "") -> None:
        super().__init__(text)
        self.code, self.text = code, text


def administer(request: Any, version: int, batch: Batch, rng: random.Random) -> Any:
    """The answer to a client's request, whose records are in the batch."""
    return _SERVED[type(request).__name__](request, version, batch, rng)


def _create(request: wire.CreateTopicsRequest, _version: int, batch: Batch, rng: random.Random) -> Any:
    made = wire.CreateTopicsResponse
    rows = []
    for asked in request.topics:
        try:
            plans = _planned(asked, batch)
        except RefusedError as error:
            rows.append(made.CreatableTopicResult(name=asked.name, error_code=error.code, error_message=error.text))
            continue
        if request.validate_only:
            rows.append(made.CreatableTopicResult(name=asked.name, error_message=None, num_partitions=len(plans)))
            continue
        topic = _create_one(asked, plans, batch, rng)
        count, factor = len(topic.partitions), len(topic.partitions[0].replicas)
        rows.append(
            made.CreatableTopicResult(
                name=asked.name,
                topic_id=topic.topic_id,
                error_message=None,
                num_partitions=count,
                replication_factor=factor,
            )
        )
    return made(topics=rows)


def _planned(asked: wire.CreateTopicsRequest.CreatableTopic, batch: Batch) -> Sequence[tuple[int, ...]]:
    """The replicas of a new topic's partitions.  RefusedError."""
    if asked.name in batch.state.names:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    if asked.assignments:
        plans = [tuple(each.broker_ids) for each in sorted(asked.assignments, key=lambda each: each.partition_index)]
    else:
        plans = _placed(batch, max(asked.num_partitions, 1), max(asked.replication_factor, 1), len(batch.state.topics))
    _check_alive(batch, plans)
    return plans


def _create_one(
    asked: wire.CreateTopicsRequest.CreatableTopic, plans: Sequence[tuple[int, ...]], batch: Batch, rng: random.Random
) -> TopicState:
    topic_id = rng.randbytes(16)
    batch.put(wire.TopicRecord(name=asked.name, topic_id=topic_id))
    for each in asked.configs:
        if each.value is not None:
            _set(batch, TOPIC_RESOURCE, asked.name, each.name, each.value)
    if any(each.name == MIN_IN_SYNC for each in asked.configs):
        batch.put(wire.ClearElrRecord(topic_name=asked.name))
    for number, replicas in enumerate(plans):
        _add_partition(batch, topic_id, number, replicas)
    return batch.state.topics[topic_id]


def _check_alive(batch: Batch, plans: Sequence[Sequence[int]]) -> None:
    for replicas in plans:
        if not set(replicas) & batch.state.alive():
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all brokers are fenced")


def _placed(batch: Batch, count: int, factor: int, start: int) -> list[tuple[int, ...]]:
    """Live brokers first, as Kafka has it."""
    alive = sorted(batch.state.alive())
    others = sorted(set(batch.state.members) - set(alive))
    if not alive or factor > len(alive) + len(others):
        raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    plans = []
    for number in range(count):
        turn = (start + number) % len(alive)
        plans.append(tuple([*alive[turn:], *alive[:turn], *others][:factor]))
    return plans


def _add_partition(batch: Batch, topic_id: bytes, number: int, replicas: Sequence[int]) -> None:
    isr = tuple(each for each in replicas if each in batch.state.alive())
    made = PartitionImage(
        number, isr[0] if isr else NO_LEADER, 0, tuple(replicas), isr, directories=batch.directories(replicas)
    )
    batch.put(partition_record(topic_id, made))


def _set(batch: Batch, kind: int, resource: str, name: str, value: str | None) -> None:
    batch.put(wire.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))


def _delete(request: wire.DeleteTopicsRequest, version: int, batch: Batch, _rng: random.Random) -> Any:
    made, state = wire.DeleteTopicsResponse.DeletableTopicResult, batch.state
    asked = [(each.name, bytes(each.topic_id)) for each in request.topics] if version >= 6 else []
    asked += [(name, bytes(16)) for name in request.topic_names] if version < 6 else []
    rows = []
    for name, given in asked:
        topic = state.topics.get(given) if name is None else state.topic(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(made(name=name, topic_id=given, error_code=code))
            continue
        batch.put(wire.RemoveTopicRecord(topic_id=topic.topic_id))
        rows.append(made(name=topic.name, topic_id=topic.topic_id, error_message=None))
    return wire.DeleteTopicsResponse(responses=rows)


def _grow(request: wire.CreatePartitionsRequest, _version: int, batch: Batch, _rng: random.Random) -> Any:
    made = wire.CreatePartitionsResponse
    rows = []
    for asked in request.topics:
        try:
            _grow_one(asked, batch, is_only_checked=request.validate_only)
        except RefusedError as error:
            rows.append(made.CreatePartitionsTopicResult(name=asked.name, error_code=error.code))
        else:
            rows.append(made.CreatePartitionsTopicResult(name=asked.name, error_message=None))
    return made(results=rows)


def _grow_one(
    asked: wire.CreatePartitionsRequest.CreatePartitionsTopic, batch: Batch, *, is_only_checked: bool
) -> None:
    topic = batch.state.topic(asked.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before = len(topic.partitions)
    if asked.count <= before:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS)
    if asked.assignments is None:
        plans = _placed(batch, asked.count - before, len(topic.partitions[0].replicas), before)
    else:
        plans = [tuple(each.broker_ids) for each in asked.assignments]
    _check_alive(batch, plans)
    for number, replicas in enumerate(plans, before):
        if not is_only_checked:
            _add_partition(batch, topic.topic_id, number, replicas)


def _alter_configs(
    request: wire.IncrementalAlterConfigsRequest, _version: int, batch: Batch, _rng: random.Random
) -> Any:
    made = wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows = []
    for asked in request.resources:
        edits = [(each.name, each.config_operation, each.value) for each in asked.configs]
        code = _configure(batch, asked.resource_type, asked.resource_name, edits)
        rows.append(made(resource_type=asked.resource_type, resource_name=asked.resource_name, error_code=code))
    return wire.IncrementalAlterConfigsResponse(responses=rows)


def _replace_configs(request: wire.AlterConfigsRequest, _version: int, batch: Batch, _rng: random.Random) -> Any:
    made = wire.AlterConfigsResponse.AlterConfigsResourceResponse
    rows = []
    for asked in request.resources:
        topic = batch.state.topic(asked.resource_name)
        given = {each.name for each in asked.configs}
        edits: list[tuple[str, int, str | None]] = [
            (name, DELETE, None) for name in (topic.configs if topic else ()) if name not in given
        ]
        edits += [(each.name, SET, each.value) for each in asked.configs]
        code = _configure(batch, asked.resource_type, asked.resource_name, edits)
        rows.append(made(resource_type=asked.resource_type, resource_name=asked.resource_name, error_code=code))
    return wire.AlterConfigsResponse(responses=rows)


def _configure(batch: Batch, kind: int, name: str, edits: Sequence[tuple[str, int, str | None]]) -> int:
    topic = batch.state.topic(name)
    if kind == TOPIC_RESOURCE and topic is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before = topic.configs if topic is not None else batch.state.configs.get((kind, name), {})
    for key, operation, given in edits:
        value = _edited(before.get(key), operation, given)
        if value != before.get(key):
            _set(batch, kind, name, key, value)
            if key == MIN_IN_SYNC:
                batch.put(wire.ClearElrRecord(topic_name=name if kind == TOPIC_RESOURCE else ""))
    return 0


def _edited(old: str | None, operation: int, given: str | None) -> str | None:
    items, named = (old.split(",") if old else []), (given or "").split(",")
    if operation == APPEND:
        return ",".join([*items, *(each for each in named if each not in items)])
    if operation == SUBTRACT:
        return ",".join(each for each in items if each not in named)
    return None if operation == DELETE else given


def _reassign(
    request: wire.AlterPartitionReassignmentsRequest, _version: int, batch: Batch, _rng: random.Random
) -> Any:
    made = wire.AlterPartitionReassignmentsResponse
    topics = []
    for asked in request.topics:
        rows = []
        for each in asked.partitions:
            row = made.ReassignablePartitionResponse(partition_index=each.partition_index, error_message=None)
            try:
                _reassign_one(batch, asked.name, each.partition_index, each.replicas)
            except RefusedError as error:
                row.error_code, row.error_message = error.code, error.text
            rows.append(row)
        topics.append(made.ReassignableTopicResponse(name=asked.name, partitions=rows))
    return made(responses=topics, error_message=None)


def _reassign_one(batch: Batch, name: str, number: int, target: Sequence[int] | None) -> None:
    topic, old = _partition(batch, name, number)
    try:
        if target is None:
            new = call_off(batch.viewed(old), batch.context(topic))
        else:
            new = reassign(batch.viewed(old), target, batch.state.members, batch.context(topic), True)
    except KafkaError as error:
        raise RefusedError(ErrorCode(error.code), str(error)) from error
    batch.alter(topic, old, new)


def _partition(batch: Batch, name: str, number: int) -> tuple[TopicState, PartitionImage]:
    topic = batch.state.topic(name)
    found = None if topic is None else topic.partitions.get(number)
    if topic is None or found is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic, found


def _reassignments(
    request: wire.ListPartitionReassignmentsRequest, _version: int, batch: Batch, _rng: random.Random
) -> Any:
    made = wire.ListPartitionReassignmentsResponse
    asked = (
        None
        if request.topics is None
        else {(each.name, number) for each in request.topics for number in each.partition_indexes}
    )
    topics: dict[str, list[Any]] = {}
    for topic, each in batch.state.partitions():
        is_moving = each.adding_replicas or each.removing_replicas
        if is_moving and (asked is None or (topic.name, each.partition) in asked):
            row = made.OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding_replicas),
                removing_replicas=list(each.removing_replicas),
            )
            topics.setdefault(topic.name, []).append(row)
    rows = [made.OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()]
    return made(topics=rows, error_message=None)


def _elect(request: wire.ElectLeadersRequest, _version: int, batch: Batch, _rng: random.Random) -> Any:
    made = wire.ElectLeadersResponse
    wanted = ElectionType(request.election_type)
    if request.topic_partitions is None:
        names = [(topic.name, each.partition) for topic, each in batch.state.partitions()]
    else:
        names = [(each.topic, number) for each in request.topic_partitions for number in each.partitions]
    topics: dict[str, list[Any]] = {}
    for name, number in names:
        row = made.PartitionResult(partition_id=number, error_message=None)
        try:
            topic, old = _partition(batch, name, number)
            batch.alter(topic, old, elect(batch.viewed(old), wanted, batch.context(topic)))
        except RefusedError as refused:
            row.error_code, row.error_message = refused.code, refused.text
        except KafkaError as error:
            if error.code == ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
                continue
            row.error_code, row.error_message = error.code, str(error)
        topics.setdefault(name, []).append(row)
    rows = [made.ReplicaElectionResult(topic=name, partition_result=each) for name, each in topics.items()]
    return made(replica_election_results=rows)


def _update_features(request: wire.UpdateFeaturesRequest, _version: int, batch: Batch, _rng: random.Random) -> Any:
    for each in request.feature_updates:
        batch.put(wire.FeatureLevelRecord(name=each.feature, feature_level=each.max_version_level))
    return wire.UpdateFeaturesResponse(error_message=None)


def _alter_quotas(request: wire.AlterClientQuotasRequest, _version: int, batch: Batch, _rng: random.Random) -> Any:
    made, record = wire.AlterClientQuotasResponse, wire.ClientQuotaRecord
    rows = []
    for each in request.entries:
        entity = [record.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in each.entity]
        if not request.validate_only:
            for op in each.ops:
                batch.put(record(entity=entity, key=op.key, value=op.value, remove=op.remove))
        told = [made.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in each.entity]
        rows.append(made.EntryData(error_message=None, entity=told))
    return made(entries=rows)


_SERVED: dict[str, Callable[[Any, int, Batch, random.Random], Any]] = {
    "CreateTopicsRequest": _create,
    "DeleteTopicsRequest": _delete,
    "CreatePartitionsRequest": _grow,
    "IncrementalAlterConfigsRequest": _alter_configs,
    "AlterConfigsRequest": _replace_configs,
    "AlterPartitionReassignmentsRequest": _reassign,
    "ListPartitionReassignmentsRequest": _reassignments,
    "ElectLeadersRequest": _elect,
    "UpdateFeaturesRequest": _update_features,
    "AlterClientQuotasRequest": _alter_quotas,
}
