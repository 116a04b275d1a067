"""From committed batches to published images: whole transactions, one publication, cost; and back to records.

Also of `kbroker.cluster.kraft.cluster_metadata`, `kbroker.cluster.kraft.batches`, `kbroker.metadata.image_records`,
`kbroker.metadata.broker_records`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.base.slices import Slices
from kbroker.cluster.kraft.batches import ControlRecord, DamagedBatchesError, checked_batch, records_of
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata, empty_image
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot, snapshot_batches
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kbroker.metadata.image import ClusterImage, MetadataDelta
from kbroker.metadata.image_records import image_records
from kbroker.metadata.metadata_record import (
    MetadataLogError,
    MetadataRecord,
    decode_record,
    encode_record,
    metadata_record,
)
from kbroker.metadata.record_deltas import delta_of
from kbroker.schemas import wire
from kbroker.types import ZERO_UUID
from tests.cluster.kraft.controllers import data_batch, leader_batch
from tests.cluster.kraft.vectors import FOLDER, bytes_of, vector

TOPIC = bytes(range(16))
DIRECTORY, OTHER_DIRECTORY = bytes(range(1, 17)), bytes(range(2, 18))


def one(value: object, version: int = 0) -> MetadataRecord:
    return metadata_record(value, version)  # type: ignore[arg-type]


def applied(*batches: Sequence[MetadataRecord], metadata: ClusterMetadata | None = None) -> ClusterMetadata:
    """What the batches come to, one application for each."""

    async def work() -> ClusterMetadata:
        known = metadata or ClusterMetadata("c", Slices(slice_us=0))
        for records in batches:
            await known.apply([data_batch(known.applied_offset + 1, 1, list(records))])
        return known

    return asyncio.run(work())


TOPIC_RECORDS = [
    one(wire.TopicRecord(name="t", topic_id=TOPIC)),
    *(
        one(
            wire.PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DIRECTORY, OTHER_DIRECTORY],
            ),
            1,
        )
        for number in range(2)
    ),
]
REGISTERED = wire.RegisterBrokerRecord(
    broker_id=4,
    broker_epoch=7,
    incarnation_id=TOPIC,
    end_points=[wire.RegisterBrokerRecord.BrokerEndpoint(name="SSL", host="h", port=9, security_protocol=1)],
    features=[
        wire.RegisterBrokerRecord.BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1)
    ],
    rack="r",
    fenced=True,
    log_dirs=[DIRECTORY, OTHER_DIRECTORY],
)


def changed(**values: object) -> MetadataRecord:
    return one(wire.BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=7, **values), 3)  # type: ignore[arg-type]


def test_a_registration_and_its_changes() -> None:
    """This broker would not see that another one is fenced, leaves, or has lost a directory."""
    known = applied([one(REGISTERED, 4)])
    broker = known.image.brokers[4]
    assert (broker.epoch, broker.is_fenced, broker.rack, broker.incarnation_id) == (7, True, "r", TOPIC)
    assert (broker.endpoints["SSL"], broker.protocols, broker.features) == (
        ("h", 9),
        {"SSL": 1},
        {"group.version": (0, 1)},
    )
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ((DIRECTORY, OTHER_DIRECTORY), None)
    applied([changed(fenced=-1, cordoned_log_dirs=[])], metadata=known)
    assert (known.image.brokers[4].is_fenced, known.image.brokers[4].cordoned_log_dirs) == (False, ())
    applied([changed(in_controlled_shutdown=1), changed(log_dirs=[DIRECTORY])], metadata=known)
    broker = known.image.brokers[4]
    assert (broker.in_controlled_shutdown, broker.is_fenced, broker.log_dirs) == (True, False, (DIRECTORY,))
    applied([one(wire.FenceBrokerRecord(id=4, epoch=7))], metadata=known)
    assert known.image.brokers[4].is_fenced
    unregistered = one(wire.UnregisterBrokerRecord(broker_id=4, broker_epoch=7))
    applied([one(wire.UnfenceBrokerRecord(id=4, epoch=7)), unregistered], metadata=known)
    assert not known.image.brokers


def test_epochs_of_partitions() -> None:
    """An observer that miscounts can no longer change an ISR."""
    change = wire.PartitionChangeRecord
    known = applied(TOPIC_RECORDS)
    applied(
        [
            one(change(partition_id=0, topic_id=TOPIC, isr=[1]), 2),
            one(change(partition_id=0, topic_id=TOPIC, leader=1), 2),
            one(change(partition_id=0, topic_id=TOPIC, isr=[2], leader=2, leader_recovery_state=1), 2),
            one(change(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=[1], directories=[DIRECTORY] * 2), 2),
            one(wire.ClearElrRecord(topic_name="")),
            one(wire.ClearElrRecord(topic_name="t")),
        ],
        metadata=known,
    )
    first, second = known.image.topics["t"].partitions
    assert (first.partition_epoch, first.leader_epoch, first.leader, first.isr, first.elr) == (5, 2, 2, (2,), ())
    assert (first.leader_recovery_state, first.directories) == (1, (DIRECTORY, DIRECTORY))
    assert (second.partition_epoch, second.leader_epoch, second.directories) == (0, 0, (DIRECTORY, OTHER_DIRECTORY))


@pytest.mark.parametrize("ends", [True, False])
def test_a_transaction_counts_whole_or_not_at_all(ends: bool) -> None:
    """Half of a new cluster's settings would be acted upon."""
    begin, end = one(wire.BeginTransactionRecord(name="n")), one(wire.EndTransactionRecord())
    known = applied(
        [one(wire.FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)), begin, *TOPIC_RECORDS[:1]],
        TOPIC_RECORDS[1:],
    )
    assert known.image.features.level(METADATA_VERSION) == 30, "what stands before it was lost"
    assert not known.image.topics and known.applied_offset == -1
    last = end if ends else one(wire.AbortTransactionRecord(reason="r"))

    async def work() -> None:
        await known.apply([data_batch(5, 1, [last]), leader_batch(6, 2, 3001)])

    asyncio.run(work())
    assert bool(known.image.topics) == ends
    assert (known.applied_offset, known.applied_epoch) == (6, 2)


def test_one_publication_for_each_application() -> None:
    """Subscribers would see states in between, or hear of nothing for hours every half second."""
    known = applied(TOPIC_RECORDS)
    cache = MetadataCache(ClusterImage.of("c"))
    heard: list[MetadataDelta] = []
    cache.subscribe(lambda _old, _new, delta: heard.append(delta))
    assert not cache.is_filled
    known.attach(cache)
    assert cache.is_filled and cache.image.topics == known.image.topics and len(heard) == 1
    applied([one(wire.NoOpRecord())] * 3, metadata=known)
    assert len(heard) == 1 and known.applied_offset == 5
    applied([one(wire.RemoveTopicRecord(topic_id=TOPIC)), *TOPIC_RECORDS[:1]], metadata=known)
    assert len(heard) == 2 and known.image is cache.image
    assert [each.name for each in heard[1].deleted] == ["t"] or heard[1].changed


def test_a_snapshot_changes_what_it_says_otherwise() -> None:
    """A broker that falls behind would take all of its topics for new, or keep those that are gone."""
    known = applied([one(wire.TopicRecord(name="gone", topic_id=DIRECTORY)), *TOPIC_RECORDS])
    cache = MetadataCache(ClusterImage.of("c"))
    known.attach(cache)
    heard: list[MetadataDelta] = []
    cache.subscribe(lambda _old, _new, delta: heard.append(delta))
    before = cache.image.topics["t"]
    made = [*TOPIC_RECORDS, one(wire.TopicRecord(name="new", topic_id=OTHER_DIRECTORY))]
    content = b"".join(encoded_snapshot(made, 2, 0))

    async def load() -> None:
        await known.load(snapshot_batches(content, "test"), SnapshotId(500, 2), "test")

    asyncio.run(load())
    (delta,) = heard
    assert [[each.name for each in part] for part in (delta.created, delta.deleted)] == [["new"], ["gone"]]
    assert not delta.changed and cache.image.topics["t"] is before
    assert known.applied_offset == 499


def test_waiting() -> None:
    """What answers a client would wait for ever, or not at all."""

    async def work() -> None:
        known = ClusterMetadata("c")
        waiting = asyncio.ensure_future(known.wait_until(lambda: "t" in known.image.topics, 60))
        await asyncio.sleep(0)
        await known.apply([data_batch(0, 1, [one(wire.NoOpRecord())])])
        await asyncio.sleep(0)
        assert not waiting.done()
        await known.apply([data_batch(1, 1, TOPIC_RECORDS)])
        await asyncio.wait_for(waiting, 60)
        assert not await known.wait_until(lambda: False, 0.01)

    asyncio.run(work())


def test_a_newer_metadata_version_is_refused() -> None:
    """The broker would serve a cluster whose rules it does not know."""
    for level in (6, 31):
        with pytest.raises(MetadataLogError, match="upgrade kbroker"):
            applied([one(wire.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))])


def test_features_count_by_offsets_and_are_off_unless_set() -> None:
    """Clients would keep old levels, or use a protocol that the cluster has not switched on."""
    known = applied([one(wire.FeatureLevelRecord(name=METADATA_VERSION, feature_level=21))], [one(wire.NoOpRecord())])
    assert known.image.features.levels() == {METADATA_VERSION: 21}
    assert known.image.features.epoch == 0
    applied([one(wire.FeatureLevelRecord(name="group.version", feature_level=1))], metadata=known)
    assert known.image.features.levels() == {METADATA_VERSION: 21, "group.version": 1}
    assert known.image.features.epoch == 2
    applied([one(wire.FeatureLevelRecord(name="group.version", feature_level=0))], metadata=known)
    assert known.image.features.levels() == {METADATA_VERSION: 21}


def test_every_record_of_real_kafka_is_known() -> None:
    """One that is not would end the broker."""
    seen = set()
    for path in sorted(FOLDER.glob("r*.hex")):
        if path.name[4:].startswith(("LeaderChange", "KRaftVersion", "VotersRecord")):
            continue
        record = decode_record(bytes_of(path), path.name)
        assert encode_record(record) == bytes_of(path)
        seen.add(record.name)
    assert len(seen) == 22


def test_a_real_snapshot_comes_back_as_it_was() -> None:
    """This broker's own snapshots would lose what the controllers' have."""
    data = vector("s01")

    async def load(content: bytes) -> ClusterMetadata:
        known = ClusterMetadata("c", Slices(slice_us=0))
        await known.load(snapshot_batches(content, "s01"), SnapshotId(1000, 3), "s01")
        return known

    known = asyncio.run(load(data))
    assert known.image.brokers and known.image.controllers and known.image.features.level(KRAFT_VERSION) == 1
    assert known.voter_endpoints("CONTROLLER").keys() == {3001, 3002, 3003}
    assert (known.applied_offset, known.applied_epoch) == (999, 3)
    control = [each for each in (known.kraft_version, known.voters) if each is not None]
    others = list(known.others.values())
    own = b"".join(encoded_snapshot(image_records(known.image, others), 3, known.applied_ms, control))
    again = asyncio.run(load(own))
    assert again.image == known.image and again.others == known.others and again.voters == known.voters
    assert sorted(_values(own)) == sorted(_values(data))


def _values(content: bytes) -> list[bytes]:
    """The metadata records of a snapshot, with their fields in one order."""
    found = []
    for batch in snapshot_batches(content, "test"):
        for _, record in records_of(batch, "test"):
            if not isinstance(record, ControlRecord):
                found.append(b"%s %d" % (record.name.encode(), record.version) + bytes(sorted(encode_record(record))))
    return found


numbers = st.lists(st.integers(0, 5), unique=True, max_size=4)
uuids = st.sampled_from([ZERO_UUID, DIRECTORY, OTHER_DIRECTORY])


@st.composite
def records(draw: st.DrawFn) -> list[MetadataRecord]:
    """A cluster at some metadata.version, in its records."""
    level = draw(st.sampled_from([7, 8, 17, 23, 30]))
    found = [one(wire.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))]
    for node in draw(numbers):
        registered = wire.RegisterBrokerRecord(
            broker_id=node,
            broker_epoch=draw(st.integers(0, 99)),
            incarnation_id=draw(uuids),
            end_points=REGISTERED.end_points,
            features=REGISTERED.features,
            rack=draw(st.sampled_from([None, "r"])),
            fenced=draw(st.booleans()),
            in_controlled_shutdown=draw(st.booleans()),
        )
        if level >= 17:
            registered.log_dirs = draw(st.lists(uuids, max_size=2))
        if level >= 30:
            registered.cordoned_log_dirs = draw(st.none() | st.lists(uuids, max_size=2))
        found.append(one(registered, 1 + (level >= 8) + (level >= 17) + (level >= 30)))
    for at, count in enumerate(draw(st.lists(st.integers(0, 3), max_size=3))):
        topic_id = bytes([at]) + TOPIC[1:]
        found.append(one(wire.TopicRecord(name=f"t{at}", topic_id=topic_id)))
        for number in range(count):
            partition = wire.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=draw(numbers),
                isr=draw(numbers),
                removing_replicas=draw(numbers),
                adding_replicas=draw(numbers),
                leader=draw(st.integers(-1, 5)),
                leader_epoch=draw(st.integers(0, 9)),
                partition_epoch=draw(st.integers(0, 9)),
                leader_recovery_state=draw(st.integers(0, 1)),
            )
            if level >= 17:
                partition.directories = draw(st.lists(uuids, max_size=3))
            if level >= 23:
                partition.eligible_leader_replicas = draw(st.none() | numbers)
                partition.last_known_elr = draw(st.none() | numbers)
            found.append(one(partition, (level >= 17) + (level >= 23)))
        found.append(one(wire.ConfigRecord(resource_type=2, resource_name=f"t{at}", name="a.b", value="1")))
    found.append(one(wire.ConfigRecord(resource_type=32, resource_name="g", name="c", value="2")))
    return found


@given(records=records())
@settings(deadline=None, max_examples=100)
def test_images_and_records_are_the_same(records: list[MetadataRecord]) -> None:
    """A field that a snapshot leaves out would be forgotten with the next start."""
    empty = empty_image("c")
    image = empty.apply(delta_of(empty, records))
    written = list(image_records(image))
    assert empty.apply(delta_of(empty, (decode_record(encode_record(each), "test") for each in written))) == image


def test_a_damaged_batch_is_never_read() -> None:
    """Garbage would be taken for records."""
    data = data_batch(0, 1, TOPIC_RECORDS).data
    for at in range(16, len(data), 7):
        with pytest.raises(DamagedBatchesError):
            checked_batch(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "test")


async def lines_of(work: Awaitable[None]) -> int:
    """How many lines of Python the work runs: a busy machine does not change this measure of its cost."""
    count = 0

    def ran(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return ran

    before = sys.gettrace()
    sys.settrace(ran)  # type: ignore[arg-type]
    try:
        await work
    finally:
        sys.settrace(before)
    return count


def test_a_large_cluster_is_small_and_quick() -> None:
    """A leader's failure would hold up every client of this broker, or the metadata fill its memory."""

    async def work() -> None:
        known = ClusterMetadata("c")
        made = [one(wire.FeatureLevelRecord(name=METADATA_VERSION, feature_level=30))]
        for at in range(1000):
            topic_id = (at + 1).to_bytes(16, "big")
            made.append(one(wire.TopicRecord(name=f"t{at}", topic_id=topic_id)))
            for number in range(10):
                replicas = [1 + (at + number + each) % 5 for each in range(3)]
                made.append(
                    one(
                        wire.PartitionRecord(
                            partition_id=number,
                            topic_id=topic_id,
                            replicas=replicas,
                            isr=replicas,
                            leader=replicas[0],
                            directories=[DIRECTORY] * 3,
                        ),
                        2,
                    )
                )
        content = b"".join(encoded_snapshot(made, 1, 0))
        await known.load(snapshot_batches(content, "test"), SnapshotId(20_000, 1), "test")
        cache = MetadataCache(ClusterImage.of("c"))
        known.attach(cache)
        changes = [
            one(wire.PartitionChangeRecord(partition_id=number, topic_id=(at + 1).to_bytes(16, "big"), leader=2), 2)
            for at in range(1000)
            for number in range(3)
        ]
        batch = data_batch(20_000, 1, changes)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count())
        # A record may cost some hundred lines; it may not cost more where there are 10,000 partitions.
        assert await lines_of(known.apply([batch])) < 250 * len(changes)
        assert turns >= 3, "the loop was held until the end"
        counting.cancel()
        small = ClusterMetadata("c")
        costs = [
            await lines_of(each.apply([data_batch(offset, 1, [one(wire.NoOpRecord())])]))
            for each, offset in ((small, 0), (known, 23_000))
        ]
        assert costs[1] < costs[0] + 100, "a record that says nothing costs what there is"
        shared = {id(each.replicas) for topic in known.image.topics.values() for each in topic.partitions}
        assert len(shared) <= 5 * 2, "equal tuples are not one"

    asyncio.run(work())
