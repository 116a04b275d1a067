"""What workers say to each other comes over as it was, and nothing else is taken."""

from __future__ import annotations

import pickle
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import BrokerEpoch, EditOperation, ElectionType, NewTopic, TopicOutcome
from kbroker.cluster.workers import messages
from kbroker.cluster.workers.messages import Answered, Call, Change, Gone, Hello, MessageError, Snapshot, decode, encode
from kbroker.cluster.workers.quota import ForwardedQuota
from kbroker.errors import ErrorCode, InvalidTopicError, KafkaError, StaleBrokerEpochError
from kbroker.metadata.image import BrokerImage, BrokersImage, ClusterImage, MetadataDelta, PartitionImage, TopicImage
from kbroker.quotas.meters import QuotaMeters
from kbroker.quotas.mutation_quota import MutationQuota
from kbroker.quotas.rate import Windows
from kbroker.quotas.rules import Limit, Share

TOPIC = TopicImage("t", b"t" * 16, (PartitionImage(0, 1, 3, (1, 2), (1,)),))
IMAGE = ClusterImage.of("cluster", controller_id=1, brokers=[BrokerImage(1, {}, epoch=4)], topics=[TOPIC])
MESSAGES = [
    Hello(3),
    Gone(4711),
    Snapshot(IMAGE),
    Change(MetadataDelta(created=(TOPIC,), brokers=BrokersImage(IMAGE.brokers, 1))),
    Call(1, "create_topics", ([NewTopic("t", 3)], True)),
    Answered(1, [TopicOutcome("t", TOPIC)], charged=(3,)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_messages_come_over_as_they_were(message: Hello) -> None:
    """Two workers would have two clusters."""
    frame = encode(message)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode(frame[4:]) == message


@pytest.mark.parametrize(
    "error",
    [
        StaleBrokerEpochError(),
        InvalidTopicError("no"),
        KafkaError.of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "later"),
        KafkaError.of(ErrorCode.POLICY_VIOLATION),
    ],
    ids=str,
)
def test_errors_keep_code_and_words(error: KafkaError) -> None:
    """A client would be told UNKNOWN_SERVER_ERROR by each worker but the first."""
    found = decode(encode(Answered(1, TopicOutcome("t", error=error), error))[4:])
    assert isinstance(found, Answered)
    assert isinstance(found.value, TopicOutcome)
    for each in (found.error, found.value.error):
        assert each is not None
        assert (type(each), each.code, each.message, str(each)) == (type(error), error.code, error.message, str(error))


def test_a_quota_goes_along_with_what_is_left_of_it() -> None:
    """A client's quota on topics would hold on worker 1 alone."""
    limit = Limit(1.0, Share("", "app"))
    windows = Windows(2, 1000)
    quota = MutationQuota(QuotaMeters(windows, windows), limit, strict=True, now_ms=0)
    quota.record(5)
    call = decode(encode(Call(1, "create_topics", (), ForwardedQuota(quota)))[4:])
    assert isinstance(call, Call)
    assert isinstance(call.quota, ForwardedQuota)
    with pytest.raises(KafkaError):
        call.quota.record(1)
    assert call.quota.charged == []


def test_no_other_names_are_loaded() -> None:
    """Pickled bytes can name any function of any library."""
    for value in (print, BrokerEpoch, pickle.Pickler):
        body = pickle.dumps(value)
        with pytest.raises(MessageError):
            decode(body)


@pytest.mark.parametrize(
    "name", ["io.open", "pickle.loads", "KafkaError.mro", "decode.__globals__", "MappingProxyType"]
)
def test_what_a_module_of_kbroker_imports_is_not_loaded(name: str) -> None:
    """A dotted name would lead through a module of kbroker to any function of any library."""
    named = b"".join(
        bytes((pickle.SHORT_BINUNICODE[0], len(text))) + text for text in (messages.__name__.encode(), name.encode())
    )
    with pytest.raises(MessageError, match="is nothing that workers send"):
        decode(pickle.PROTO + b"\x04" + named + pickle.STACK_GLOBAL + pickle.STOP)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_bytes_are_no_message_or_another(at: int, value: int) -> None:
    """A worker would end with an error that says nothing."""
    body = bytearray(encode(MESSAGES[1])[4:])
    body[at % len(body)] = value
    try:
        decode(bytes(body))
    except MessageError:
        return


@pytest.mark.parametrize("value", [EditOperation.SET, ElectionType.PREFERRED, ConfigResourceType.TOPIC])
def test_no_message_calls_a_function_for_a_member_of_an_enumeration(value: Enum) -> None:
    """With Debian 12's Python a worker's changes of settings and elections would be refused by the others."""
    body = encode(Answered(1, value, None))[4:]
    assert b"getattr" not in body
    found = decode(body)
    assert isinstance(found, Answered)
    assert found.value is value
