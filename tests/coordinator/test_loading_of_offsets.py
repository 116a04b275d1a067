"""Loading leaves out what later records replace, and comes to the state that replaying every record comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.records.record_codec import append_record, gather_newest
from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.offsets import CommittedOffset, OffsetTable
from kbroker.coordinator.runtime import shard as shard_module
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.records.control import ControlType, build_end_transaction
from tests.coordinator.harness import MemoryLog, World
from tests.coordinator.snapshots import snapshot

PLACES = st.tuples(st.sampled_from("gh"), st.integers(0, 2))
COMMITS = st.lists(st.tuples(PLACES, st.none() | st.integers(0, 99)), min_size=1, max_size=5)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), COMMITS, st.sampled_from([Codec.NONE, Codec.GZIP])),
        st.tuples(st.just("transaction"), COMMITS, st.integers(1, 2)),
        st.tuples(st.just("end"), st.booleans(), st.integers(1, 2)),
        st.tuples(st.just("group"), st.sampled_from("gh"), st.none()),
    ),
    max_size=15,
)


def written(operation: tuple[str, Any, Any]) -> bytearray:
    """One batch."""
    kind, what, how = operation
    if kind == "end":
        return build_end_transaction(ControlType.COMMIT if what else ControlType.ABORT, 0, how, 0, 1_000)
    builder = RecordBatchBuilder(
        compression=how if kind == "commit" else Codec.NONE,
        producer_id=how if kind == "transaction" else -1,
        producer_epoch=0 if kind == "transaction" else -1,
        is_transactional=kind == "transaction",
    )
    if kind == "group":
        builder.append(state_records.group_key(what), None, 1_000)
        return builder.build()
    for (group_id, partition), offset in what:
        key = state_records.offset_key(group_id, "t1", partition)
        value = None if offset is None else state_records.offset_value(CommittedOffset(offset))
        builder.append(key, value, 1_000)
    return builder.build()


def loaded(log: MemoryLog, last_superseding_type: int) -> World:
    """A coordinator that has read the log, with or without a look at what is replaced."""
    world = World({"offsets.topic.num.partitions": 1}, log, with_topic=False)
    runtime = world.coordinator.registry.runtime
    runtime._last_superseding_type = last_superseding_type
    log.ensure_topic()
    world.loop.advance(60)
    return world


def state(world: World) -> Any:
    pending = {
        group_id: {
            producer_id: {place: each.committed for place, each in offsets.items()}
            for producer_id, offsets in group.offsets.pending.items()
        }
        for group_id, group in world.coordinator.registry.groups.items()
    }
    return snapshot(world), pending


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.sampled_from([1, 3, 1 << 18]))
def test_what_is_left_out_makes_no_difference(operations: list[tuple[str, Any, Any]], most_gathered: int) -> None:
    """After a restart a group would go on from an offset that was not the last one committed."""
    log = MemoryLog(None, 1)
    for operation in operations:
        log.append(0, written(operation))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_module, "_MOST_GATHERED", most_gathered)
        assert state(loaded(log, 1)) == state(loaded(log, -1))


def test_most_of_an_uncompacted_log_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition with a million commits would keep its groups away for many seconds."""
    log = MemoryLog(None, 1)
    for offset in range(200):
        log.append(0, written(("commit", [(("g", partition), offset) for partition in range(3)], Codec.NONE)))
    replayed: list[bytes | None] = []
    parse = state_records.parse_record

    def count(key: bytes | None, value: bytes | None) -> Any:
        replayed.append(key)
        return parse(key, value)

    monkeypatch.setattr(state_records, "parse_record", count)
    world = loaded(log, 1)
    assert [world.committed("g", partition=index) for index in range(3)] == [199] * 3
    assert len(replayed) == 3


def test_damaged_and_odd_records_are_left_to_the_replay() -> None:
    """Bytes that are no record would be read beyond their end, or taken for a commit."""
    good = bytearray()
    append_record(good, 0, 0, b"\0\1key", b"value")
    newest: dict[bytes, bytes | None] = {}
    assert gather_newest(bytes(good), newest, 1) and newest == {b"\0\1key": b"value"}
    assert gather_newest(b"", newest, 1)
    for end in range(1, len(good)):
        assert not gather_newest(bytes(good[:end]), {}, 1)
    for place in range(len(good)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            gather_newest(bytes(good[:place]) + bytes([value]) + bytes(good[place + 1 :]), {}, 1)
    for key, value, headers in ((b"\0\2key", b"v", ()), (b"\0", b"v", ()), (None, b"v", ()), (b"\0\1", None, ())):
        odd = bytearray()
        append_record(odd, 0, 0, key, value, headers)
        assert not gather_newest(bytes(odd), {}, 1)
    headed = bytearray()
    append_record(headed, 0, 0, b"\0\1", b"v", [("h", b"v")])
    assert not gather_newest(bytes(headed), {}, 1)


def test_of_two_commits_the_one_written_later_counts() -> None:
    """A plain commit beside an open transaction would be lost when that ends, and be back after a restart."""
    table = OffsetTable()
    table.put_pending(1, "t", 0, CommittedOffset(10))
    table.put("t", 0, CommittedOffset(5))
    assert table.has_pending("t", 0)
    table.decide(1, committed=True)
    assert table.get("t", 0) == CommittedOffset(5) and not table.has_pending("t", 0)
    table.put_pending(2, "t", 0, CommittedOffset(20))
    table.put_pending(3, "t", 0, CommittedOffset(30))
    table.decide(3, committed=True)
    table.decide(2, committed=True)
    assert table.get("t", 0) == CommittedOffset(30)
    table.put_pending(4, "t", 0, CommittedOffset(40))
    table.put("t", 0, CommittedOffset(35))
    table.put_pending(4, "t", 0, CommittedOffset(45))
    table.decide(4, committed=True)
    assert table.get("t", 0) == CommittedOffset(45)
