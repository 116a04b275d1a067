"""Contents of znodes: vectors captured from Kafka 3.9.1 and older tools, round trips, and nonsense."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.zookeeper import consumer_znodes as consumers
from kbroker.cluster.zookeeper import znodes
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import BrokerEndpoint, BrokerZnode, ControllerZnode, StateZnode, TopicZnode
from kbroker.types import TopicPartition, uuid_from_text

BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SASL_PLAINTEXT":"SASL_PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:25021","SASL_PLAINTEXT://127.0.0.1:25015"],"rack":"rackA","jmx_port":-1,'
    b'"port":25021,"host":"127.0.0.1","version":5,"timestamp":"1795461978973"}'
)
TOPIC = (
    b'{"partitions":{"0":[1,2,3]},"topic_id":"kicrEOtuQ-SqaqTTPhbtNw","adding_replicas":{"0":[1]},'
    b'"removing_replicas":{"0":[3]},"version":3}'
)
CONSUMER = b'{"version":1,"subscription":{"old1":1},"pattern":"white_list","timestamp":"1795461723896"}'
Decode = Callable[[bytes | None], object]
Encode = Callable[[object], bytes]

VECTORS: list[tuple[bytes, object, Decode, Callable[..., bytes]]] = [
    (
        BROKER,
        BrokerZnode(
            (
                BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 25021),
                BrokerEndpoint("SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", 25015),
            ),
            "rackA",
            1795461978973,
        ),
        znodes.decode_broker,
        znodes.encode_broker,
    ),
    (
        TOPIC,
        TopicZnode({0: (1, 2, 3)}, uuid_from_text("kicrEOtuQ-SqaqTTPhbtNw"), {0: (1,)}, {0: (3,)}),
        znodes.decode_topic,
        znodes.encode_topic,
    ),
    (
        b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3,1]}',
        StateZnode(2, 0, (2, 3, 1), 1),
        znodes.decode_state,
        znodes.encode_state,
    ),
    (
        b'{"controller_epoch":2,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":3,"isr":[2]}',
        StateZnode(2, 3, (2,), 2, True),
        znodes.decode_state,
        znodes.encode_state,
    ),
    (
        b'{"version":2,"brokerid":1,"timestamp":"1795459783271","kraftControllerEpoch":-1}',
        ControllerZnode(1, 1795459783271),
        znodes.decode_controller,
        znodes.encode_controller,
    ),
    (b"1", 1, znodes.decode_epoch, znodes.encode_epoch),
    (
        b'{"version":"1","id":"3NOt4GPcTLG7Oxt0DVc6yA"}',
        "3NOt4GPcTLG7Oxt0DVc6yA",
        znodes.decode_cluster_id,
        znodes.encode_cluster_id,
    ),
    (
        b'{"version":1,"config":{"retention.ms":"3600000"}}',
        {"retention.ms": "3600000"},
        znodes.decode_config,
        znodes.encode_config,
    ),
    (
        b'{"version":2,"entity_path":"topics/t1"}',
        "topics/t1",
        znodes.decode_config_change,
        znodes.encode_config_change,
    ),
    (
        b'{"version":1,"partitions":[{"topic":"t1","partition":2}]}',
        [TopicPartition("t1", 2)],
        znodes.decode_partitions,
        znodes.encode_partitions,
    ),
    (
        b'{"version":1,"partitions":[{"topic":"t3","partition":0,"replicas":[2,1]}]}',
        {TopicPartition("t3", 0): (2, 1)},
        znodes.decode_reassignment,
        znodes.encode_reassignment,
    ),
    (b'{"version":1,"broker":2,"event":1}', 2, znodes.decode_log_dir_event, znodes.encode_log_dir_event),
    (
        b'{"version":1,"broker":2,"block_start":"0","block_end":"999"}',
        znodes.ProducerIdBlockZnode(2, 0, 999),
        znodes.decode_producer_id_block,
        znodes.encode_producer_id_block,
    ),
    (
        CONSUMER,
        consumers.ConsumerZnode({"old1": 1}, "white_list", 1795461723896),
        consumers.decode_consumer,
        consumers.encode_consumer,
    ),
    (b"7", 7, consumers.decode_offset, consumers.encode_offset),
]
DECODERS = [decode for _, _, decode, _ in VECTORS] + [znodes.decode_feature]


@pytest.mark.parametrize(("data", "value", "decode", "encode"), VECTORS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_kafka_writes_is_read_and_written_alike(
    data: bytes, value: object, decode: Decode, encode: Callable[..., bytes]
) -> None:
    """Brokers of Kafka in the same cluster would not understand a znode, or be misunderstood."""
    assert decode(data) == value
    assert encode(value) == data


def test_older_versions_are_read() -> None:
    """Members of a cluster that is upgraded step by step, and its old tools, would be unknown."""
    one = znodes.decode_broker(b'{"jmx_port":-1,"host":"h","version":1,"port":9}')
    assert one.endpoints == (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "h", 9),)
    two = znodes.decode_broker(b'{"version":2,"endpoints":["SSL://h:9","PLAINTEXT://[::1]:8"],"jmx_port":-1}')
    assert two.endpoints[1] == BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "::1", 8)
    assert znodes.decode_topic(b'{"version":1,"partitions":{"1":[1],"0":[1]}}') == TopicZnode({0: (1,), 1: (1,)})
    assert znodes.decode_config_change(b'"t1"') == "topics/t1"
    old = b'{"version" : 1, "entity_type" : "clients", "entity_name" : "app"}'
    assert znodes.decode_config_change(old) == "clients/app"
    assert znodes.decode_feature(b'{"features":{},"version":2,"status":1}') == ({}, True)
    assert znodes.encode_feature({}) == b'{"features":{},"version":2,"status":1}'
    assert znodes.decode_config(None) == {}


def test_older_versions_are_written_for_an_older_protocol_version() -> None:
    """Brokers of an older Kafka would fail on a registration with what they do not know."""
    broker = VECTORS[0][1]
    assert isinstance(broker, BrokerZnode)
    assert b"features" not in znodes.encode_broker(broker, 4)
    assert znodes.decode_broker(znodes.encode_broker(broker, 4)) == broker
    assert b"security_protocol_map" not in znodes.encode_broker(broker, 2)


names = st.text(st.characters(codec="utf-8", exclude_characters=":/[]"), min_size=1, max_size=20)
ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, min_size=1, max_size=5, unique=True).map(tuple)


@given(
    st.lists(
        st.builds(
            BrokerEndpoint,
            names,
            st.sampled_from(znodes.SECURITY_PROTOCOLS),
            st.one_of(st.just("::1"), st.text("abc.-09", max_size=9)),
            st.integers(0, 65535),
        ),
        min_size=1,
        unique_by=lambda each: each.listener,
    ),
    st.none() | st.text(),
    st.integers(0, 2**62),
    st.integers(-1, 65535),
)
def test_registrations_come_back(endpoints: list[BrokerEndpoint], rack: str | None, stamp: int, jmx_port: int) -> None:
    """A broker would be reached at another address than it announced."""
    broker = BrokerZnode(tuple(endpoints), rack, stamp, {}, jmx_port)
    assert znodes.decode_broker(znodes.encode_broker(broker)) == broker


@given(st.lists(replicas, max_size=6), st.none() | st.binary(min_size=16, max_size=16), st.data())
def test_assignments_come_back(assigned: list[tuple[int, ...]], topic_id: bytes | None, data: st.DataObject) -> None:
    """A topic's replicas would be elsewhere than the controller decided."""
    partitions = dict(enumerate(assigned))

    def some(index: int) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.sampled_from(partitions[index]), unique=True)))

    adding = {index: moved for index in partitions if (moved := some(index))}
    removing = {index: moved for index in partitions if (moved := some(index))}
    topic = TopicZnode(partitions, topic_id, adding, removing)
    assert znodes.decode_topic(znodes.encode_topic(topic)) == topic


@given(st.integers(-1, 2**31 - 1), ids, st.just(()) | replicas, ids, st.booleans())
def test_states_come_back(leader: int, epoch: int, isr: tuple[int, ...], controller: int, recovering: bool) -> None:
    """A partition would have another leader or ISR after the controller moved."""
    state = StateZnode(leader, epoch, isr, controller, recovering)
    assert znodes.decode_state(znodes.encode_state(state)) == state


@pytest.mark.parametrize("decode", DECODERS, ids=lambda each: each.__name__)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_nonsense_is_one_kind_of_error(decode: Decode, data: st.DataObject) -> None:
    """A znode that a person has edited would stop a broker or its controller."""
    vector = data.draw(st.sampled_from([each[0] for each in VECTORS]))
    value = json.loads(vector)

    def damaged(value: object) -> object:
        if isinstance(value, dict) and value and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(value)))
            return {**value, key: damaged(value[key])}
        if isinstance(value, list) and value and data.draw(st.booleans()):
            return [damaged(value[0]), *value[1:]]
        return data.draw(
            st.sampled_from([None, True, -(2**70), 2**40, 1.5, "", "x", "\ud800", [], {}, [[]], {"x": {}}, "9" * 5000])
        )

    cut = data.draw(st.integers(0, len(vector)))
    for text in (
        json.dumps(damaged(value)).encode(),
        vector[:cut],
        data.draw(st.binary(max_size=30)),
        b"[" * 2_000,
        None,
    ):
        try:
            decode(text)
        except ZnodeError as error:
            assert str(error)
