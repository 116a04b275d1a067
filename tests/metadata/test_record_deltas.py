"""Images from the records of a KRaft cluster: real logs of Kafka, in one piece and in many, and what is no log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.metadata.image import ClusterImage, ConfigResource, PartitionImage
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.metadata.metadata_record import MetadataLogError, MetadataRecord, metadata_record
from kbroker.metadata.record_deltas import delta_of
from kbroker.migration.metadata_log import MetadataLog
from kbroker.schemas import wire
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.migration.kafka_data import unpack

EMPTY = ClusterImage.of("cluster")
TOPIC, OTHER = bytes(range(16)), bytes(range(1, 17))
ENTITY = [wire.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)]


def records_of(release: str, folder: Path) -> list[MetadataRecord]:
    """What a Kafka of this release has written."""
    directory, *_ = unpack(release, folder)
    return list(MetadataLog(SYSTEM_FILES, str(directory), was_closed=True).records())


def made(*values: object) -> list[MetadataRecord]:
    return [metadata_record(value, 0) for value in values]  # type: ignore[arg-type]


def topic(name: str = "t", topic_id: bytes = TOPIC) -> wire.TopicRecord:
    return wire.TopicRecord(name=name, topic_id=topic_id)


def partition(number: int = 0, topic_id: bytes = TOPIC, **values: object) -> wire.PartitionRecord:
    fields = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0, **values}
    return wire.PartitionRecord(partition_id=number, topic_id=topic_id, **fields)  # type: ignore[arg-type]


def change(number: int = 0, **values: object) -> wire.PartitionChangeRecord:
    return wire.PartitionChangeRecord(partition_id=number, topic_id=TOPIC, **values)  # type: ignore[arg-type]


def image_of(*values: object) -> ClusterImage:
    return EMPTY.apply(delta_of(EMPTY, made(*values)))


def only_partition(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_an_image_is_what_the_import_finds(release: str, tmp_path: Path) -> None:
    """A broker of a cluster would see other topics, settings or epochs than an import of the same log."""
    records = records_of(release, tmp_path)
    known = KafkaMetadata()
    known.replay(records)
    image = EMPTY.apply(delta_of(EMPTY, records))
    assert {name: each.topic_id for name, each in image.topics.items()} == {
        each.name: each.topic_id for each in known.topics.values()
    }
    for each in known.topics.values():
        assert {row.partition: row for row in image.topics[each.name].partitions} == each.partitions
        assert image.topics[each.name].configs == known.topic_configs(each.name)
    assert image.configs == {resource: values for resource, values in known.configs.items() if resource.kind != 2}
    assert image.quotas == known.quotas
    assert image.features.chosen == {name: level for name, level in known.features.items() if level}
    assert image.brokers and all(each.endpoints and each.epoch >= 0 for each in image.brokers.values())


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_records_come_to_the_same_image_in_any_pieces(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two brokers that fetched in different pieces would differ for ever."""
    records = records_of("4.3.1", tmp_path_factory.mktemp("kafka"))
    whole = EMPTY.apply(delta_of(EMPTY, records))
    image = EMPTY
    # Partitions of one topic come in one batch, as the controller writes them.
    while records:
        size = data.draw(st.integers(1, len(records)))
        while size < len(records) and isinstance(records[size].value, wire.PartitionRecord):
            size += 1
        image = image.apply(delta_of(image, records[:size]))
        del records[:size]
    assert (image.topics, image.topics_by_id, image.brokers) == (whole.topics, whole.topics_by_id, whole.brokers)
    assert (image.configs, image.quotas) == (whole.configs, whole.quotas)
    assert image.features.chosen == whole.features.chosen


def test_epochs_are_counted_as_the_controller_counts_them() -> None:
    """A broker's proposals would be refused as those of the past or the future."""
    image = image_of(topic(), partition(leader_epoch=4, partition_epoch=7))
    steps = [
        (change(isr=[1]), (4, 8)),
        (change(leader=2), (5, 9)),
        (change(leader=2), (6, 10)),
        (change(eligible_leader_replicas=[2], isr=[]), (6, 11)),
        (wire.ClearElrRecord(topic_name=""), (6, 12)),
        (wire.ClearElrRecord(topic_name="t"), (6, 12)),
    ]
    for value, epochs in steps:
        image = image.apply(delta_of(image, made(value)))
        row = only_partition(image)
        assert (row.leader_epoch, row.partition_epoch) == epochs, value
    assert only_partition(image).elr == () and only_partition(image).isr == ()


def test_a_topic_that_is_made_again_within_a_batch_is_another_one() -> None:
    """Settings and partitions of the topic before would be the new one's."""
    image = image_of(
        topic(), wire.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"), partition()
    )
    delta = delta_of(image, made(wire.RemoveTopicRecord(topic_id=TOPIC), topic(topic_id=OTHER), partition(0, OTHER)))
    assert [each.topic_id for each in delta.deleted] == [TOPIC]
    after = image.apply(delta)
    assert after.topics["t"].topic_id == OTHER and not after.topics["t"].configs and list(after.topics_by_id) == [OTHER]
    gone = delta_of(EMPTY, made(topic(), partition(), wire.RemoveTopicRecord(topic_id=TOPIC)))
    assert gone.is_empty()


def test_what_is_taken_back_is_no_change() -> None:
    """Subscribers would do work for nothing, and a resource without settings would stay."""
    image = image_of(
        wire.ConfigRecord(resource_type=4, resource_name="", name="log.cleaner.threads", value="2"),
        wire.ClientQuotaRecord(entity=ENTITY, key="request_percentage", value=50.0, remove=False),
        wire.FeatureLevelRecord(name="group.version", feature_level=1),
    )
    resource = ConfigResource(4, "")
    assert image.configs == {resource: {"log.cleaner.threads": "2"}}
    assert image.quotas == {(("user", None),): {"request_percentage": 50.0}}
    back = delta_of(
        image,
        made(
            wire.ConfigRecord(resource_type=4, resource_name="", name="log.cleaner.threads", value=None),
            wire.ClientQuotaRecord(entity=ENTITY, key="request_percentage", value=0.0, remove=True),
            wire.FeatureLevelRecord(name="group.version", feature_level=0),
        ),
    )
    after = image.apply(back)
    assert not after.configs and not after.quotas and not after.features.chosen
    again = delta_of(
        image, made(wire.ConfigRecord(resource_type=4, resource_name="", name="log.cleaner.threads", value="2"))
    )
    assert again.is_empty()


def test_brokers_register_are_fenced_and_go() -> None:
    """Clients would be sent to brokers that are gone, or not to those that are there."""
    endpoint = wire.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="a", port=9092, security_protocol=0)
    registered = wire.RegisterBrokerRecord(broker_id=7, broker_epoch=21, end_points=[endpoint], rack="r", fenced=True)
    image = image_of(registered)
    assert image.brokers[7].is_fenced and image.brokers[7].epoch == 21 and image.brokers[7].rack == "r"
    for value, is_fenced in [
        (wire.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=21, fenced=-1), False),
        (wire.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=21, in_controlled_shutdown=1), False),
        (wire.FenceBrokerRecord(id=7, epoch=21), True),
        (wire.UnfenceBrokerRecord(id=7, epoch=21), False),
        (wire.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=21, fenced=1), True),
    ]:
        image = image.apply(delta_of(image, made(value)))
        assert image.brokers[7].is_fenced == is_fenced, value
    assert not image.apply(delta_of(image, made(wire.UnregisterBrokerRecord(broker_id=7, broker_epoch=21)))).brokers


@pytest.mark.parametrize(
    "values",
    [
        (partition(),),
        (topic(), change()),
        (topic(), topic(topic_id=OTHER)),
        (topic(), partition(1)),
        (topic(), wire.RemoveTopicRecord(topic_id=TOPIC), partition()),
        (wire.ClearElrRecord(topic_name="t"),),
        (wire.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),),
        (wire.FenceBrokerRecord(id=7, epoch=1),),
        (
            wire.RegisterBrokerRecord(broker_id=7, broker_epoch=2),
            wire.UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
        ),
    ],
)
def test_records_that_contradict_what_is_there_are_refused(values: tuple[object, ...]) -> None:
    """A broker would go on with metadata that no controller has made."""
    with pytest.raises(MetadataLogError):
        delta_of(EMPTY, made(*values))
