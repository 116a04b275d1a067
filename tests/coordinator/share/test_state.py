"""The state of share-partitions in `__share_group_state`: Kafka's bytes, and the same state after every append.

Also of `kbroker.handlers.share.share_state`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.runtime.plan import KeyValue, Plan
from kbroker.coordinator.share.share_coordinator import check_share_key, coordinator_key
from kbroker.coordinator.share.state_records import (
    ShareState,
    Update,
    parse_record,
    snapshot_record,
    update_record,
)
from kbroker.coordinator.share.state_shard import ShareStateShard
from kbroker.errors import FencedLeaderEpochError, FencedStateEpochError, InvalidRequestError, KafkaError
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.replication.share.persister import SharePartitionKey, StateBatch, StateUpdate
from kbroker.replication.share.state_batches import combine

VECTOR = Path(__file__).parents[2] / "share" / "vectors" / "kafka-4.3.1-share-group-state.log"
KEYS = [SharePartitionKey("group", b"t" * 16, index) for index in range(2)]


def kafkas_records() -> list[KeyValue]:
    data = VECTOR.read_bytes()
    return [
        (bytes(record.key or b""), None if record.value is None else bytes(record.value))
        for info in iterate_stored_batches(data)
        for record in iterate_stored_records(data, info)
    ]


def test_records_that_kafka_wrote_are_written_with_the_same_bytes() -> None:
    """Kafka could not read the state that kbroker has written, and DumpLogSegments could not show it."""
    records = kafkas_records()
    assert len(records) == 11
    for key, value in records:
        parsed = parse_record(key, value)
        if isinstance(parsed.value, ShareState):
            assert snapshot_record(parsed.key, parsed.value) == (key, value)
        elif isinstance(parsed.value, Update):
            assert update_record(parsed.key, parsed.value) == (key, value)


def test_a_log_that_kafka_wrote_is_loaded() -> None:
    """A group that moves from Kafka to kbroker would read its records again, or miss some."""
    shard = ShareStateShard(0, 500)
    for key, value in kafkas_records():
        shard.replay(key, value, -1)
    states = {key.group_id[0]: state for key, state in shard.states.items()}
    assert states["g"].start_offset == 17
    assert states["g"].state_epoch == 2
    assert states["g"].batches[0] == StateBatch(17, 17, 0, 4)
    assert states["h"].batches[0] == StateBatch(0, 139, 4, 2)


def test_damaged_and_unknown_records_are_skipped() -> None:
    """One bad record would keep all groups of its partition from loading."""
    shard = ShareStateShard(0, 500)
    records = kafkas_records()
    for key, value in records:
        for bad_key, bad_value in (
            (key[:-1], value),
            (b"\x00\x09" + key[2:], value),
            (key, (value or b"")[:-1]),
            (b"", value),
        ):
            shard.replay(bad_key, bad_value, -1)
            shard.replay(None, bad_value, -1)
    assert not shard.states
    for key, value in records:
        shard.replay(key, value, -1)
    assert len(shard.states) == 2


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 20),
        st.integers(0, 6),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 4),
    ),
    max_size=4,
)
WRITES = st.builds(
    StateUpdate,
    st.integers(-1, 3),
    st.integers(-1, 3),
    st.integers(0, 12),
    st.integers(0, 5),
    BATCHES.map(tuple),
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.one_of(
            st.tuples(st.just("initialize"), st.integers(0, 3), st.integers(-1, 10)),
            st.tuples(st.just("read"), st.integers(-1, 3)),
            st.tuples(st.just("write"), WRITES),
            st.tuples(st.just("delete")),
            st.tuples(st.just("snapshot")),
        ),
    ),
    max_size=25,
)


def carry_out(shard: ShareStateShard, key: SharePartitionKey, operation: tuple) -> Plan:
    kind, *values = operation
    if kind == "delete":
        return shard.delete(key)
    return getattr(shard, kind)(key, *values, 5)


@given(OPERATIONS, st.integers(0, 3))
def test_after_every_append_a_reload_gives_the_same_state(operations: list[tuple], updates: int) -> None:
    """A broker that is killed would come back with another state than the one it has answered from."""
    shard = ShareStateShard(0, updates)
    log: list[KeyValue] = []
    model: dict[SharePartitionKey, tuple] = {}
    for key, operation in operations:
        try:
            plan = carry_out(shard, key, operation)
        except KafkaError as error:
            assert is_refused(model.get(key), operation), error
            continue
        assert not is_refused(model.get(key), operation)
        for record in plan.records:
            log.append(record)
            shard.replay(*record, -1)
            reloaded = ShareStateShard(0, updates)
            for each in log:
                reloaded.replay(*each, -1)
            assert reloaded.states == shard.states
        apply_to_model(model, key, operation)
        known = shard.states.get(key)
        assert (known and (known.state_epoch, known.leader_epoch, known.start_offset, known.batches)) == model.get(key)


def is_refused(known: tuple | None, operation: tuple) -> bool:
    kind, *values = operation
    if kind == "initialize":
        return known is not None and known[0] > values[0]
    if kind == "read":
        return known is None or (values[0] != -1 and known[1] > values[0])
    if kind == "write":
        update = values[0]
        return (
            known is None
            or (update.leader_epoch != -1 and known[1] > update.leader_epoch)
            or (update.state_epoch != -1 and known[0] > update.state_epoch)
        )
    return False


def apply_to_model(model: dict[SharePartitionKey, tuple], key: SharePartitionKey, operation: tuple) -> None:
    kind, *values = operation
    state_epoch, leader_epoch, start, batches = model.get(key, (0, 0, 0, ()))
    if kind == "initialize":
        model[key] = (values[0], leader_epoch, values[1], ())
    elif kind == "read" and values[0] != -1:
        model[key] = (state_epoch, values[0], start, batches)
    elif kind == "write":
        update = values[0]
        model[key] = (
            state_epoch if update.state_epoch == -1 else update.state_epoch,
            leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            update.start_offset,
            combine((*batches, *update.batches), update.start_offset),
        )
    elif kind == "delete":
        model.pop(key, None)


def test_older_leaders_and_lives_are_fenced() -> None:
    """A leader that was replaced would write over what its successor has stored."""
    shard = ShareStateShard(0, 500)
    for record in shard.initialize(KEYS[0], 3, 0, 1).records:
        shard.replay(*record, -1)
    for record in shard.read(KEYS[0], 7, 1).records:
        shard.replay(*record, -1)
    with pytest.raises(FencedLeaderEpochError):
        shard.write(KEYS[0], StateUpdate(3, 6, 0, 0, ()), 1)
    with pytest.raises(FencedStateEpochError):
        shard.write(KEYS[0], StateUpdate(2, 7, 0, 0, ()), 1)
    with pytest.raises(InvalidRequestError):
        shard.read(KEYS[1], 0, 1)


def test_only_what_no_snapshot_replaces_is_needed() -> None:
    """The state topic would grow for ever, or lose the state of a group that is seldom used."""
    shard = ShareStateShard(0, 0)
    log: list[KeyValue] = []

    def write(key: SharePartitionKey, plan: Plan) -> None:
        for record in plan.records:
            shard.replay(*record, -1)
            log.append(record)
            shard.note_snapshot(key, len(log) - 1)

    write(KEYS[0], shard.initialize(KEYS[0], 0, 0, 1))
    write(KEYS[1], shard.initialize(KEYS[1], 0, 0, 1))
    for _ in range(5):
        write(KEYS[1], shard.write(KEYS[1], StateUpdate(0, 0, 0, 0, ()), 9))
    assert shard.needed_from(len(log)) == 0
    assert list(shard.cold(5)) == [KEYS[0]]
    write(KEYS[0], shard.snapshot(KEYS[0], 9))
    assert shard.needed_from(len(log)) == 6
    reloaded = ShareStateShard(0, 0)
    for record in log[6:]:
        reloaded.replay(*record, -1)
    assert reloaded.states == shard.states
    assert reloaded.needed_from(len(log)) is None
    assert set(reloaded.cold(0)) == set(KEYS)


def test_the_coordinators_key_is_kafkas() -> None:
    """Another broker would look for the state on another partition."""
    key = SharePartitionKey("a:b", bytes(range(16)), 3)
    assert coordinator_key(key) == "a:b:AAECAwQFBgcICQoLDA0ODw:3"
    check_share_key(coordinator_key(key))
    for text in ("", "g", "g:3", ":AAECAwQFBgcICQoLDA0ODw:3", "g:AAECAwQFBgcICQoLDA0ODw:x", "g:AAEC:3"):
        with pytest.raises(InvalidRequestError):
            check_share_key(text)
