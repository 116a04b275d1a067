"""What handlers may rely on in the struct classes."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from kbroker.protocol.messages import Message
from kbroker.schemas import message
from tests.protocol.names import all_schemas


def test_unset_fields_hold_the_defaults_of_the_table() -> None:
    """A handler that leaves a field alone would answer with another value than Kafka."""
    partition = message("FetchResponse").PartitionData()
    assert (partition.error_code, partition.last_stable_offset, partition.records) == (0, -1, None)
    assert partition.diverging_epoch.end_offset == -1
    request = message("FetchRequest")()
    assert (request.cluster_id, request.max_bytes, request.topics, request.rack_id) == (None, 2**31 - 1, [], "")
    assert message("MetadataResponse").MetadataResponseTopic().topic_id == bytes(16)


def test_lists_and_nested_structs_are_never_shared() -> None:
    """One client's answer would show up in another's."""
    fetch = message("FetchResponse")
    one, other = fetch(), fetch()
    one.responses.append(1)
    assert other.responses == []
    first, second = fetch.PartitionData(), fetch.PartitionData()
    first.current_leader.leader_id = 5
    assert second.current_leader.leader_id == -1
    assert first.current_leader is first.current_leader
    assert first != second


def test_structs_compare_by_value() -> None:
    """Tests and caches that compare answers would go wrong."""
    fetch = message("FetchResponse")
    assert fetch.PartitionData() == fetch.PartitionData(current_leader=fetch.LeaderIdAndEpoch())
    assert fetch.PartitionData(records=memoryview(b"x")) == fetch.PartitionData(records=b"x")
    assert fetch.PartitionData() != fetch.FetchableTopicResponse()
    assert fetch.PartitionData() != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(fetch())


def test_wrong_names_are_refused() -> None:
    """A misspelt field would be dropped in silence."""
    with pytest.raises(TypeError, match="no field 'eror_code'"):
        message("FetchResponse")(eror_code=1)
    with pytest.raises(AttributeError):
        message("FetchResponse")().eror_code = 1
    with pytest.raises(KeyError):
        message("NoSuchRequest")
    with pytest.raises(ValueError, match="versions 0 to 18, not 19"):
        message("FetchResponse").program(19)


def test_repr_shows_every_field() -> None:
    """A log line or a failed test would not tell what was in the request."""
    text = repr(message("HeartbeatRequest")(group_id="g", generation_id=3))
    assert text == "HeartbeatRequest(group_id='g', generation_id=3, member_id='', group_instance_id=None)"


def test_structs_are_freed_with_their_values() -> None:
    """Every request would leak its structs."""

    class Marker:
        pass

    data = message("SyncGroupRequest")
    struct = data(assignments=[data.SyncGroupRequestAssignment(assignment=Marker())])
    gone = weakref.ref(struct.assignments[0].assignment)
    struct.assignments = []
    assert gone() is None
    cycle: Any = data(assignments=[])
    marker = Marker()
    cycle.protocol_name, gone = marker, weakref.ref(marker)
    cycle.assignments.append(cycle)
    del cycle, marker
    gc.collect()
    assert gone() is None


def test_encoding_and_decoding_keep_reference_counts() -> None:
    """The defaults that all structs share would be freed, or kept for ever, after enough requests."""
    fetch = message("FetchResponse")
    program = fetch.program(12)
    text = "topic-" + "x" * 20
    struct = fetch(responses=[fetch.FetchableTopicResponse(topic=text, partitions=[fetch.PartitionData()])])
    payload = program.encode(struct)

    def counts() -> tuple[int, int, int]:
        return sys.getrefcount(text), sys.getrefcount(None), sys.getrefcount(payload)

    def moved() -> int:
        before = counts()
        for _ in range(1000):
            program.encode(struct)
            program.encode_response(struct, 1, True)
            program.decode(payload)
        return max(abs(new - old) for new, old in zip(counts(), before, strict=True))

    # What is lost is lost each time; garbage of other tests that is collected meanwhile refers to None as well.
    assert any(moved() < 100 for _ in range(10))


def test_no_field_hides_an_attribute_of_its_class() -> None:
    """`program` or `schema` of a message would turn out to be a field."""
    reserved = {name for name in vars(Message) if not name.startswith("_")} | set(Message.__annotations__)
    for schema in all_schemas():
        assert not reserved & {field.name for field in schema.fields}, schema.name
