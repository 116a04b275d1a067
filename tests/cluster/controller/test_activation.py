"""What a new leader appends first.

Of `kbroker.cluster.controller.activation`.
"""

from __future__ import annotations

import asyncio

import pytest

from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire
from tests.cluster.controller.led import CLUSTER, Led, bootstrap, shown
from tests.cluster.kraft.controllers import data_batch
from tests.unbroken import UNBROKEN

BEGIN = ("BeginTransactionRecord", 0, {"name": "Bootstrap records"})
MV = ("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 30})
ELR = ("FeatureLevelRecord", 0, {"name": "eligible.leader.replicas.version", "feature_level": 1})
MIN_INSYNC = ("ConfigRecord", 0, {"resource_type": 4, "name": "min.insync.replicas", "value": "2"})
END: tuple[str, int, dict[str, object]] = ("EndTransactionRecord", 0, {})
ABORT = ("AbortTransactionRecord", 0, {"reason": "Controller failover"})


def with_log(*batches: list[MetadataRecord]) -> ClusterMetadata:
    """What a log comes to that another leader has written."""

    async def work() -> ClusterMetadata:
        metadata = ClusterMetadata(CLUSTER, UNBROKEN)
        end = 0
        for records in batches:
            await metadata.apply([data_batch(end, 1, records)])
            end += len(records)
        return metadata

    return asyncio.run(work())


def begun(metadata: ClusterMetadata | None = None, records: list[MetadataRecord] | None = None) -> Led:
    led = Led({"min.insync.replicas": "2"}, metadata)
    led.lead(records)
    return led


@pytest.mark.parametrize("elr", [0, 1])
def test_a_new_cluster_begins_with_its_bootstrap_records_in_a_transaction(elr: int) -> None:
    """Brokers would see a cluster that has a part of its features."""
    led = begun(records=bootstrap(elr=elr))
    assert led.records() == [BEGIN, MV, *([ELR, MIN_INSYNC] if elr else []), END]
    assert len(led.log.batches) == 1
    assert led.written.features.chosen["metadata.version"] == 30
    led.serve(1)
    assert led.metadata.recorded.features.chosen == led.written.features.chosen


def test_before_3_6_there_are_no_transactions() -> None:
    """Brokers of that version could not read the log."""
    led = begun(records=bootstrap(12, elr=0))
    assert led.records() == [("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 12})]


def test_without_a_metadata_version_there_is_no_cluster() -> None:
    """Every record's version depends on it."""
    led = Led()
    with pytest.raises(ValueError, match=r"metadata\.version"):
        led.lead([])
    assert led.controller.term is None


def test_a_log_that_has_begun_goes_on() -> None:
    """Levels that were raised since would go back to those of the bootstrap."""
    led = begun(with_log(bootstrap()))
    assert led.records() == []
    assert led.written.features.chosen["metadata.version"] == 30


def test_an_open_transaction_is_aborted() -> None:
    """All records from then on would belong to it, and count for nothing."""
    topic = wire.TopicRecord(name="half", topic_id=bytes(range(16)))
    opened = [metadata_record(wire.BeginTransactionRecord(name="of another")), metadata_record(topic)]
    metadata = with_log(bootstrap(), opened)
    assert (metadata.is_transaction_open, metadata.applied_offset) == (True, 1)
    led = Led({"min.insync.replicas": "2"}, metadata)
    led.lead(start=4)
    assert led.records() == [ABORT]
    led.serve(1)
    assert "half" not in led.written.topics
    assert (metadata.is_transaction_open, metadata.applied_offset) == (False, led.log.end_offset - 1)
    assert metadata.recorded.brokers == led.written.brokers


def test_a_bootstrap_that_was_not_ended_is_made_again() -> None:
    """The cluster would have no features, or some of them twice."""
    opened = [metadata_record(wire.BeginTransactionRecord(name="Bootstrap records")), *bootstrap()]
    led = Led({"min.insync.replicas": "2"}, with_log(opened))
    led.lead(start=3)
    assert led.records() == [ABORT, BEGIN, MV, ELR, MIN_INSYNC, END]


def test_records_are_as_kafka_writes_them() -> None:
    """A node of Kafka's would not read them."""
    assert [shown(each) for each in bootstrap()] == [MV, ELR]
