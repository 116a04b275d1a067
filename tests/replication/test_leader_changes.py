"""Leader epochs over failures of disks, unclean stops and stores that cannot write: they never go down for a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.replica_reports import unserved_delta
from kbroker.cluster.requests import HeldLog, NewTopic
from kbroker.config import BrokerConfig, log_config
from kbroker.errors import ErrorCode, KafkaStorageError
from kbroker.handlers.topics.partition_view import view
from kbroker.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataDelta, PartitionImage, TopicChange
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.store import MetadataStoreError
from kbroker.replication.leader_changes import NO_LOG, held_logs, report_at_start
from kbroker.replication.log_dir_failure_handler import LogDirFailureHandler
from kbroker.replication.partition import Partition
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition
from tests.cluster.parts import Metadata
from tests.storage.batches import batch
from tests.unbroken import UNBROKEN, finished

METADATA = "metadata.sqlite"


class _Done:
    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        callback(self)


class Loop:
    """What a broker's parts ask of a loop, run by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def time(self) -> float:
        return 0.0

    def call_later(self, _delay: float, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def create_task(self, coroutine: Any) -> asyncio.Future[None]:
        finished(coroutine)
        return _Done()  # type: ignore[return-value]

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Store(LocalStore):
    """Fails while it is told to."""

    __slots__ = ("is_failing",)

    def write(self, delta: MetadataDelta) -> None:
        if self.is_failing and delta.changed:
            raise MetadataStoreError("disk I/O error")
        super().write(delta)


class Parts:
    """Metadata, logs in two directories and the partitions of one broker, without its network."""

    def __init__(self, folder: Path, *, is_failing: bool = False) -> None:
        self.config = BrokerConfig.from_mapping({"log.dirs": f"{folder}/first,{folder}/second"})
        self.logs = LogManager(self.config, SYSTEM_CLOCK)
        dirs = self.logs.open_dirs()
        opened = Store.open(folder / METADATA, dirs.cluster_id)
        assert isinstance(opened, Store)
        self.store = opened
        self.store.is_failing = is_failing
        self.logs.claim(self.store.cluster_id)
        self.logs.load_all()
        node_id = self.node_id = self.config.node_id
        broker = BrokerImage(node_id, {"PLAINTEXT": Endpoint("127.0.0.1", 9092)})
        metadata = Metadata(self.store, self.config, node_id=node_id)
        self.cache, self.controller = metadata.cache, metadata.controller
        registered, _ = finished(self.controller.register_broker(broker))
        report = report_at_start(self.cache.image, node_id, self.logs)
        finished(self.controller.report_replicas(registered, report))
        self.loop = Loop()
        self.replicas = ReplicaManager(
            node_id,
            self.logs,
            lambda configs: log_config(self.config, configs),
            self.loop,  # type: ignore[arg-type]
        )
        self.replicas.roles.apply_image(self.cache.image)
        self.cache.subscribe(self.replicas.roles.apply)
        self.halted: list[str] = []
        self.failures = LogDirFailureHandler(
            self.logs,
            self.cache,
            self.controller,
            lambda: registered,
            self.loop,  # type: ignore[arg-type]
            self.halted.append,
        )
        self.failures.start()

    def create(self) -> None:
        finished(self.controller.create_topics([NewTopic("t", 2)]))
        for index in range(2):
            self.replicas.partition("t", index)  # which makes its log now

    def fail(self, directory: int) -> None:
        path = self.logs.directories[directory].path
        assert self.logs.failures.maybe_add_offline_log_dir(path, "broken")
        self.loop.run()

    @property
    def epochs(self) -> list[int]:
        return [each.leader_epoch for each in self.partitions]

    @property
    def partitions(self) -> Sequence[PartitionImage]:
        return self.cache.image.topics["t"].partitions

    def stop(self, *, clean: bool = True) -> None:
        if clean:
            self.logs.shutdown()
        else:
            self.logs.release()
        self.store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Parts]]:
    started: list[Parts] = []

    def begin(*, is_failing: bool = False) -> Parts:
        started.append(Parts(tmp_path, is_failing=is_failing))
        return started[-1]

    yield begin
    started[-1].stop()


def test_a_log_that_is_not_there_is_held_as_none(start: Callable[..., Parts]) -> None:
    """Nobody would know whether a partition was ever written to, once its machine has lost its power."""
    parts = start()
    finished(parts.controller.create_topics([NewTopic("t", 2)]))
    parts.replicas.partition("t", 0)
    missing = {TopicPartition("t", 1): NO_LOG}
    assert finished(held_logs(parts.cache.image, parts.node_id, parts.logs, UNBROKEN.pace())) == missing
    report = report_at_start(parts.cache.image, parts.node_id, parts.logs, all_on_one_host=True)
    assert not report.unclean
    parts.fail(0)
    assert not finished(held_logs(parts.cache.image, parts.node_id, parts.logs, UNBROKEN.pace()))


def test_an_epoch_that_cannot_be_stored_is_not_published(start: Callable[..., Parts]) -> None:
    """After the restart clients would take the stored epoch for stale, and wait for a leader for good."""
    parts = start()
    parts.create()
    parts.store.is_failing = True
    parts.fail(0)
    assert parts.halted
    assert parts.epochs == [0, 0]
    lost = next(each for each in parts.partitions if each.offline_replicas)
    with pytest.raises(KafkaStorageError):
        parts.replicas.partition("t", lost.partition)
    seen = view(lost, frozenset({parts.node_id}), 12)
    assert (seen.leader, seen.error, seen.offline) == (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE, (parts.node_id,))
    kept = next(each for each in parts.partitions if not each.offline_replicas)
    assert parts.replicas.partition("t", kept.partition).leader_epoch == 0


def test_an_epoch_that_is_stored_is_published_with_the_loss_of_the_leader(start: Callable[..., Parts]) -> None:
    """Clients would go on asking a broker that has no log any more."""
    parts = start()
    parts.create()
    parts.fail(1)
    lost = next(each for each in parts.partitions if each.offline_replicas)
    assert (lost.leader, lost.leader_epoch, lost.isr) == (NO_LEADER, 1, ())
    stored = next(each for each in parts.store.topics() if each.name == "t").partitions[lost.partition]
    assert (stored.leader, stored.leader_epoch) == (NO_LEADER, 1)
    assert not parts.halted


class NoFetchers:
    """Copies nothing."""

    def follow(self, partition: Partition) -> None:
        pass

    def forget(self, topic_partition: TopicPartition) -> None:
        pass

    def note_leaders(self, endpoints: Mapping[int, Endpoint]) -> None:
        pass


def test_a_lost_replica_is_not_made_anew_for_a_controller_that_does_not_know_of_its_loss(
    start: Callable[..., Parts],
) -> None:
    """An empty log would lead in the epoch of the full one, and its followers cut theirs to the same length."""
    parts = start()
    parts.replicas.roles.fetchers = NoFetchers()
    parts.create()
    before = parts.cache.image.topics["t"]
    parts.fail(1)
    lost = next(each.partition for each in parts.partitions if each.offline_replicas)
    parts.cache.apply(MetadataDelta(changed=(TopicChange(parts.cache.image.topics["t"], before),)))
    assert parts.partitions[lost].leader == parts.node_id
    with pytest.raises(KafkaStorageError):
        parts.replicas.partition("t", lost)
    assert parts.logs.get_log(TopicPartition("t", lost)) is None
    assert parts.replicas.partition("t", 1 - lost).leader_epoch == 0


def test_a_replica_that_is_served_again_is_not_counted_among_the_offline_ones(start: Callable[..., Parts]) -> None:
    """Readiness and metrics would complain of a partition whose log is there."""
    parts = start()
    parts.replicas.roles.fetchers = NoFetchers()
    parts.create()
    before = parts.cache.image.topics["t"]
    parts.cache.apply(unserved_delta(parts.cache.image, parts.node_id, [TopicPartition("t", 0)]))
    assert parts.replicas.offline_count == 1
    parts.cache.apply(MetadataDelta(changed=(TopicChange(parts.cache.image.topics["t"], before),)))
    assert parts.replicas.partition("t", 0).leader_epoch == 0
    assert parts.replicas.offline_count == 0


def test_an_unclean_start_begins_new_epochs_and_a_clean_one_does_not(start: Callable[..., Parts]) -> None:
    """Records that a client has read may be lost; in the same epoch it would read others in their place."""
    parts = start()
    parts.create()
    for clean, epochs in ((True, [0, 0]), (False, [1, 1]), (True, [1, 1]), (False, [2, 2])):
        parts.stop(clean=clean)
        parts = start()
        assert parts.epochs == epochs
        assert [parts.replicas.partition("t", each).leader_epoch for each in (0, 1)] == epochs


def test_only_the_partitions_of_an_unclean_directory_begin_new_epochs(
    tmp_path: Path, start: Callable[..., Parts]
) -> None:
    """A disk that was stopped in order has lost nothing."""
    parts = start()
    parts.create()
    parts.stop()
    (tmp_path / "second" / ".kafka_cleanshutdown").unlink()
    parts = start()
    parents = [parts.replicas.partition("t", each).log.parent for each in (0, 1)]
    assert {Path(parent).name: epoch for parent, epoch in zip(parents, parts.epochs, strict=True)} == {
        "first": 0,
        "second": 1,
    }


def cut(folder: Path) -> None:
    """Take the last batch of t-0 from the disk."""
    (segment,) = folder.glob("*/t-0/*.log")
    data = segment.read_bytes()
    first = 12 + int.from_bytes(data[8:12], "big")
    segment.write_bytes(data[:first])


def test_a_log_that_lacks_its_end_after_a_clean_stop_is_held_as_cut(
    tmp_path: Path, start: Callable[..., Parts]
) -> None:
    """The others would cut their logs to its end, and what was committed would be gone, though both had it."""
    parts = start()
    parts.create()
    for value in (b"a", b"b"):
        parts.replicas.partition("t", 0).log.append_as_leader(batch([value]), 0)
    parts.replicas.partition("t", 0).advance()
    parts.stop()
    cut(tmp_path)
    parts = start()
    assert parts.epochs == [1, 0]
    partition = parts.partitions[0]
    shared = replace(partition, replicas=(*partition.replicas, 7), isr=(*partition.isr, 7))
    before = parts.cache.image.topics["t"]
    parts.replicas.roles.fetchers = NoFetchers()
    after = replace(before, partitions=(shared, *before.partitions[1:]))
    parts.cache.apply(MetadataDelta(changed=(TopicChange(before, after),)))
    held = finished(held_logs(parts.cache.image, parts.node_id, parts.logs, UNBROKEN.pace()))
    assert held[TopicPartition("t", 0)] == HeldLog(1, 1, is_unclean=False, is_cut=True)
    parts.replicas.partition("t", 0).log.append_as_leader(batch([b"c"]), 1)
    held = finished(held_logs(parts.cache.image, parts.node_id, parts.logs, UNBROKEN.pace()))
    assert not held[TopicPartition("t", 0)].is_cut


def test_no_leader_begins_below_the_epochs_of_its_log(tmp_path: Path, start: Callable[..., Parts]) -> None:
    """A backup of the store, or a log from another broker, would take clients back and forget where epochs begin."""
    parts = start()
    parts.create()
    parts.stop()
    old = (tmp_path / METADATA).read_bytes()
    for _ in range(3):
        parts = start()
        parts.stop(clean=False)
    parts = start()
    assert parts.epochs == [3, 3]
    parts.replicas.partition("t", 0).log.append_as_leader(batch([b"a"]), 3)
    parts.stop()
    (tmp_path / METADATA).write_bytes(old)
    parts = start()
    assert parts.epochs[0] == 4
    assert parts.replicas.partition("t", 0).log.leader_epoch_cache.entries == [(3, 0), (4, 1)]


def test_a_start_without_space_for_new_epochs_serves_in_the_stored_ones(start: Callable[..., Parts]) -> None:
    """A full disk would turn a crash into a broker that does not start, or epochs that go back with the next one."""
    parts = start()
    parts.create()
    parts.stop(clean=False)
    parts = start(is_failing=True)
    assert parts.epochs == [0, 0]
    assert parts.replicas.partition("t", 0).leader_epoch == 0


def test_a_leader_that_is_back_serves_once_its_epoch_can_be_stored(start: Callable[..., Parts]) -> None:
    """Its epoch would go back with the next start."""
    parts = start()
    parts.create()
    parts.fail(1)
    lost = next(each.partition for each in parts.partitions if each.offline_replicas)
    parts.stop()
    parts = start(is_failing=True)
    assert parts.partitions[lost].leader_epoch == 1
    with pytest.raises(KafkaStorageError):
        parts.replicas.partition("t", lost)
    assert parts.logs.get_log(TopicPartition("t", lost)) is not None
    parts.stop()
    parts = start()
    assert parts.partitions[lost].leader_epoch == 2
    assert parts.replicas.partition("t", lost).leader_epoch == 2
