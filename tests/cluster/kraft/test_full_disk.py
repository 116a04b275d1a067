"""A broker of a KRaft cluster whose disk is full, beside what Apache Kafka shows of one.

Of `kbroker.assembly.membership.kraft`, `kbroker.cluster.kraft.directory_assignments`; also of
`kbroker.replication.logs_without_room`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.schemas import wire
from tests.broker.small_disk import SmallDisk, small_disk
from tests.cluster.kraft.asking import ask
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for
from tests.storage.batches import batch

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FULL, ONE, OTHER = 1, 2, 3
EVERYBODY = {FULL, ONE, OTHER}
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR.value
PARTITIONS = range(4)
LED_BY_IT = [[FULL, ONE, OTHER], [FULL, OTHER, ONE]] * 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The first directory of broker FULL."""
    with small_disk(tmp_path / f"disk-{FULL}") as made:
        yield made


def settings(folder: Path, directories: int) -> dict[str, str]:
    """So many directories for each broker; the metadata log is elsewhere."""
    dirs = [str(folder / "disk-{id}" / "data"), *(str(folder / f"more-{{id}}-{at}") for at in range(1, directories))]
    return {"log.dirs": ",".join(dirs), "metadata.log.dir": str(folder / "metadata-{id}")}


def produced(cluster: Cluster, node: int, topic: str, acks: int = 1) -> dict[int, int]:
    """The errors of the partitions."""
    request = wire.ProduceRequest
    rows = [request.PartitionProduceData(index=at, records=bytes(batch([b"v"]))) for at in PARTITIONS]
    asked = request(acks=acks, timeout_ms=5000, topic_data=[request.TopicProduceData(name=topic, partition_data=rows)])
    (answer,) = ask(cluster, node, asked, 8).responses
    return {row.index: row.error_code for row in answer.partition_responses}


def fetched(cluster: Cluster, node: int, topic: str) -> dict[int, int]:
    """The errors of the partitions."""
    request = wire.FetchRequest
    rows = [request.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20) for at in PARTITIONS]
    asked = request(max_bytes=1 << 20, topics=[request.FetchTopic(topic=topic, partitions=rows)])
    (answer,) = ask(cluster, node, asked, 11).responses
    return {row.partition_index: row.error_code for row in answer.partitions}


def listed(cluster: Cluster, node: int, topic: str) -> dict[int, int]:
    """The errors of the partitions."""
    request = wire.ListOffsetsRequest
    rows = [request.ListOffsetsPartition(partition_index=at, timestamp=-1) for at in PARTITIONS]
    asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=rows)])
    (answer,) = ask(cluster, node, asked, 5).topics
    return {row.partition_index: row.error_code for row in answer.partitions}


def offline(cluster: Cluster, node: int, topic: str) -> set[int]:
    """The partitions whose replica on the full disk is offline, as a broker tells it."""
    request = wire.MetadataRequest
    (answer,) = ask(cluster, node, request(topics=[request.MetadataRequestTopic(name=topic)]), 9).topics
    return {row.partition_index for row in answer.partitions if row.offline_replicas == [FULL]}


def refused(errors: dict[int, int]) -> set[int]:
    """The partitions with a storage error."""
    return {at for at, code in errors.items() if code == STORAGE_ERROR}


def are_led_elsewhere(cluster: Cluster, topic: str, partitions: set[int]) -> bool:
    """Whether others lead them, and the broker with the full disk is in no ISR of theirs."""
    leaders, isr = cluster.leaders(topic), cluster.isr(topic, through=OTHER)
    return all(leaders[at] in (ONE, OTHER) and FULL not in isr[at] for at in partitions)


@pytest.mark.parametrize(("kind", "directories"), [(Kbroker, 1), (Kafka, 2)])
def test_new_partitions_for_which_a_broker_has_no_room_are_led_by_others(
    tmp_path: Path, disk: SmallDisk, kind: type[Kbroker | Kafka], directories: int
) -> None:
    """A topic would take no records while one of three disks is full.  Kafka's broker needs another directory, as it
    ends with its last one."""
    with running(tmp_path, (kind, Kbroker, Kbroker), settings=settings(tmp_path, directories)) as cluster:
        disk.take(leave=0)
        cluster.create("t", LED_BY_IT)
        # The directories get them in turn.
        count = len(PARTITIONS) // directories
        wait_for(lambda: len(refused(fetched(cluster, FULL, "t"))) == count, "partitions without a log", seconds=60)
        without = refused(fetched(cluster, FULL, "t"))
        assert refused(produced(cluster, FULL, "t")) == refused(listed(cluster, FULL, "t")) == without
        wait_for(lambda: are_led_elsewhere(cluster, "t", without), "other leaders", seconds=60)
        for node in EVERYBODY:
            wait_for(lambda node=node: offline(cluster, node, "t") == without, "the offline replicas", seconds=60)  # type: ignore[misc]
        cluster.produce("t", [str(at) for at in PARTITIONS])
        assert refused(produced(cluster, FULL, "t")) == without
        disk.give_back()
        if kind is Kafka:
            # A directory that is offline stays so until the broker's next start.
            cluster.create("u", LED_BY_IT)
            assert refused(fetched(cluster, FULL, "t")) == without
            return
        cluster.wait_isr("t", EVERYBODY, through=FULL)
        wait_for(lambda: not offline(cluster, OTHER, "t"), "no replica to be offline", seconds=60)
        wait_for(lambda: not refused(fetched(cluster, FULL, "t")), "the logs to be there", seconds=60)
        # The controllers know where they are, too: this broker can lead them again.
        for node in (ONE, OTHER):
            cluster.nodes[node].kill()
        wait_for(lambda: set(cluster.leaders("t")) == {FULL}, "the broker to lead all", seconds=120)


def test_a_new_partition_that_nobody_else_has_is_there_once_there_is_room(tmp_path: Path, disk: SmallDisk) -> None:
    """Given to nobody, it would have to wait for the controllers' next balancing, or for a start of the broker."""
    with running(tmp_path, (Kbroker,), settings=settings(tmp_path, 1)) as cluster:
        disk.take(leave=0)
        cluster.create("t", [[FULL]] * len(PARTITIONS))
        wait_for(lambda: refused(produced(cluster, FULL, "t")) == set(PARTITIONS), "no room", seconds=60)
        assert cluster.leaders("t") == [FULL] * len(PARTITIONS)
        disk.give_back()
        wait_for(lambda: not any(produced(cluster, FULL, "t", -1).values()), "records to be taken", seconds=60)


RESERVE = "kbroker.disk.reserve.bytes"


def reserve(cluster: Cluster, size: int) -> None:
    """What has to stay free on a broker's disk: more than there is fills it."""
    request = wire.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=RESERVE, config_operation=0, value=str(size))
    row = request.AlterConfigsResource(resource_type=4, resource_name=str(FULL), configs=[config])
    (answer,) = ask(cluster, FULL, request(resources=[row]), 1).responses
    assert not answer.error_code, answer


@pytest.mark.parametrize("kinds", [(Kbroker, Kbroker, Kbroker), (Kbroker, Kafka, Kafka)])
def test_a_broker_whose_disk_is_full_hands_its_leaders_over(
    tmp_path: Path, kinds: tuple[type[Kbroker | Kafka], ...]
) -> None:
    """Nothing could be written to what it leads, though two replicas have room."""
    with running(tmp_path, kinds) as cluster:
        cluster.create("t", LED_BY_IT)
        cluster.create("alone", [[FULL]])
        cluster.wait_isr("t", EVERYBODY, through=FULL)
        cluster.produce("t", ["before"], 0)
        reserve(cluster, 1 << 60)
        wait_for(lambda: are_led_elsewhere(cluster, "t", set(PARTITIONS)), "other leaders", seconds=60)
        assert cluster.leaders("alone") == [FULL]
        cluster.produce("t", ["after", "later"], 0)
        assert "are handed over to in-sync replicas that have room" in cluster.nodes[FULL].output()
        assert not any(FULL in each for each in cluster.isr("t", through=FULL)), "what it has no room for, it follows"
        reserve(cluster, 0)
        cluster.wait_isr("t", EVERYBODY, through=FULL)
        assert sorted(cluster.consume("t", 1, 3)) == ["after", "before", "later"]
        for node in (ONE, OTHER):
            cluster.nodes[node].kill()
        wait_for(lambda: set(cluster.leaders("t")) == {FULL}, "the broker to lead all", seconds=120)
