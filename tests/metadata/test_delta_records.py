"""Changes of an image as records and back: `kbroker.metadata.delta_records` beside `kbroker.metadata.record_deltas`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.metadata.delta_records import delta_records
from kbroker.metadata.difference import difference
from kbroker.metadata.features import KRAFT_FEATURES, METADATA_VERSION, Features
from kbroker.metadata.image import (
    BrokerImage,
    BrokersImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.metadata_record import MetadataRecord, decode_record, encode_record
from kbroker.metadata.record_deltas import delta_of
from kbroker.metadata.security_image import Acl, DelegationToken, ScramCredential, ScramKey, SecurityImage
from kbroker.schemas import wire

LEVEL = 30
IDS = [bytes([number]) * 16 for number in range(1, 9)]
NODES = st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)
DIRECTORIES = st.lists(st.sampled_from(IDS), max_size=3).map(tuple)
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from(["1", "2"]), max_size=3)
LIMITS = st.dictionaries(st.sampled_from(["request_percentage", "producer_byte_rate"]), st.sampled_from([1.0, 2.5]))
ENTITIES = st.sampled_from([(("user", None),), (("client-id", "c"), ("user", "u"))])


@st.composite
def partitions(draw: st.DrawFn, number: int) -> PartitionImage:
    return PartitionImage(
        number,
        draw(st.integers(-1, 5)),
        draw(st.integers(0, 3)),
        draw(NODES),
        draw(NODES),
        draw(st.integers(0, 3)),
        adding_replicas=draw(NODES),
        removing_replicas=draw(NODES),
        elr=draw(NODES),
        last_known_elr=draw(NODES),
        directories=draw(DIRECTORIES),
        leader_recovery_state=draw(st.integers(0, 1)),
    )


@st.composite
def topics(draw: st.DrawFn, name: str) -> TopicImage:
    count = draw(st.integers(0, 3))
    rows = tuple(draw(partitions(number)) for number in range(count))
    return TopicImage(name, draw(st.sampled_from(IDS[:2]))[1:] + name.encode(), rows, configs=draw(VALUES))


@st.composite
def broker_images(draw: st.DrawFn, node_id: int) -> BrokerImage:
    return BrokerImage(
        node_id,
        {"PLAINTEXT": Endpoint("host", draw(st.integers(1, 3)))},
        draw(st.none() | st.just("rack")),
        is_fenced=draw(st.booleans()),
        epoch=draw(st.integers(0, 2)),
        in_controlled_shutdown=draw(st.booleans()),
        protocols={"PLAINTEXT": 0},
        log_dirs=draw(DIRECTORIES),
        cordoned_log_dirs=draw(st.none() | DIRECTORIES),
        incarnation_id=draw(st.sampled_from(IDS)),
        features={METADATA_VERSION: (7, LEVEL)},
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    acl = st.builds(Acl, st.just(2), NAMES, st.just(3), st.just("User:u"), st.just("*"), st.just(3), st.just(3))
    key = st.builds(ScramKey, NAMES, st.just(1))
    scram = st.builds(ScramCredential, st.sampled_from(IDS), st.just(b"s" * 32), st.just(b"k" * 32), st.just(4096))
    token = st.builds(
        DelegationToken, st.just("t"), st.just("User:o"), st.just("User:o"), st.just(()), *[st.integers(0, 2)] * 3
    )
    controllers = {
        number: ControllerImage(number, {"C": Endpoint("h", draw(st.integers(1, 2)))}, {"C": 0}, IDS[0], {}, False)
        for number in draw(st.lists(st.just(7), max_size=1))
    }
    chosen = {METADATA_VERSION: LEVEL, **draw(st.dictionaries(st.just("group.version"), st.just(1)))}
    made = ClusterImage.of(
        "cluster",
        brokers=[draw(broker_images(number)) for number in draw(NODES)],
        topics=[draw(topics(name)) for name in draw(st.lists(NAMES, unique=True))],
        features=Features(1, chosen, KRAFT_FEATURES),
        configs=draw(st.dictionaries(st.sampled_from([ConfigResource(4, ""), ConfigResource(4, "1")]), VALUES)),
        quotas=draw(st.dictionaries(ENTITIES, LIMITS)),
        security=SecurityImage(
            draw(st.dictionaries(st.sampled_from(IDS), acl)),
            draw(st.dictionaries(key, scram)),
            draw(st.dictionaries(st.just("t"), token)),
        ),
    )
    return replace(made, controllers=controllers)


def over_the_wire(records: Any) -> list[MetadataRecord]:
    """Records as another node reads them."""
    return [decode_record(encode_record(each), "a record") for each in records]


def what_counts(image: ClusterImage) -> list[Any]:
    """All that records say: resources without settings are none."""
    configs: Mapping[Any, Any] = {each: values for each, values in image.configs.items() if values}
    quotas: Mapping[Any, Any] = {each: values for each, values in image.quotas.items() if values}
    parts = [image.brokers, image.controllers, image.topics, image.topics_by_id, image.security]
    return [*parts, configs, quotas, dict(image.features.chosen)]


@settings(deadline=None, max_examples=300)
@given(images(), images())
def test_records_of_a_change_make_the_image_behind_it(old: ClusterImage, new: ClusterImage) -> None:
    """What one controller decides, its standbys and brokers would have otherwise."""
    new = replace(new, controllers={**old.controllers, **new.controllers})
    shrunk = {
        name
        for name, topic in new.topics.items()
        if name in old.topics and len(topic.partitions) < len(old.topics[name].partitions)
    }
    kept = [topic if name not in shrunk else old.topics[name] for name, topic in new.topics.items()]
    by_id = {topic.topic_id: topic for topic in kept}
    new = replace(new, topics={each.name: each for each in kept}, topics_by_id=by_id)
    delta = difference(old, new)
    again = delta_of(old, over_the_wire(delta_records(old, delta)))
    assert what_counts(old.apply(again)) == what_counts(new)


@settings(deadline=None, max_examples=300)
@given(st.data(), topics("a"))
def test_a_change_as_controllers_decide_it_is_one_record_with_what_differs(
    data: st.DataObject, old: TopicImage
) -> None:
    """A log of whole partitions would be many times as long, and a reader could not see what happened."""
    changed = []
    for row in old.partitions:
        wanted = data.draw(partitions(row.partition))
        moves = data.draw(st.booleans())
        epoch = row.leader_epoch + moves
        leader = wanted.leader if moves else row.leader
        changed.append(replace(wanted, leader=leader, leader_epoch=epoch, partition_epoch=row.partition_epoch + 1))
    new = replace(old, partitions=tuple(changed))
    features = Features(1, {METADATA_VERSION: LEVEL}, KRAFT_FEATURES)
    image = ClusterImage.of("cluster", topics=[old], features=features)
    delta = MetadataDelta(changed=(TopicChange(old, new),))
    records = over_the_wire(delta_records(image, delta))
    assert all(isinstance(each.value, wire.PartitionChangeRecord) for each in records)
    again = delta_of(image, records)
    assert again == (delta if old.partitions else MetadataDelta())


def test_a_broker_that_is_fenced_has_a_record_of_that_alone() -> None:
    """Kafka's brokers take a second registration for another life of that broker."""
    broker = BrokerImage(1, {"P": Endpoint("h", 1)}, epoch=5, protocols={"P": 0}, log_dirs=(IDS[0],))
    image = ClusterImage.of("cluster", brokers=[broker])
    for changes in ({"is_fenced": True}, {"in_controlled_shutdown": True}, {"log_dirs": (IDS[1],)}):
        new = replace(broker, **changes)  # type: ignore[arg-type]
        delta = MetadataDelta(brokers=BrokersImage({1: new}, -1))
        (record,) = delta_records(image, delta)
        assert isinstance(record.value, wire.BrokerRegistrationChangeRecord)
        assert delta_of(image, [record]).brokers == delta.brokers


@pytest.mark.parametrize("what", ["partitions", "controllers"])
def test_what_no_record_says_is_refused(what: str) -> None:
    """The log would say something else than the controller's state."""
    row = PartitionImage(0, 1, 0, (1,), (1,))
    old = TopicImage("a", IDS[0], (row,))
    image = replace(ClusterImage.of("cluster", topics=[old]), controllers={7: ControllerImage(7, {})})
    deltas = {
        "partitions": MetadataDelta(changed=(TopicChange(old, replace(old, partitions=())),)),
        "controllers": MetadataDelta(controllers={}),
    }
    with pytest.raises(ValueError, match="away"):
        list(delta_records(image, deltas[what]))
