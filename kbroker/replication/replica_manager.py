"""The partitions that this broker leads or follows, and the only way to append to them and read from them.

Follows the metadata: `apply` is a subscriber of the metadata cache, so a topic is usable the moment that it is visible.
New logs cost several files each, and a topic may have thousands: those that do not fit into a slice of the loop's time
are made when they are first asked for, or between other work, whichever comes first (`_pending_logs`).  A log that
cannot be made leaves its partition without one; such a partition answers KAFKA_STORAGE_ERROR.  Deleted partitions are
gone for all clients at once.  Their directories are renamed between other work (`_dying`), but before a partition of
the same name is made, and before the broker stops.

Where others lead, too, a delta may change thousands of roles: those that do not fit into a slice are taken between
other work, or when a request asks for the partition (`pending_roles`).  Until then the broker answers as one that has
not heard of the change, which followers, leaders and controllers tell by the leader epoch.

Among the workers of a host it follows the metadata, too: `fetchers` copy what others lead.  In a cluster that ZooKeeper
keeps `apply` is not subscribed.  There the controller's requests (`leader_and_isr`) say what this broker leads and
follows, through `become_replica` and `drop`; `note_topics` takes over names and settings from the metadata.

Everything here runs on the event loop and nothing awaits between reading and writing the state of a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kbroker.metadata.image import altered, note_id
from kbroker.metrics.readiness import Problem
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.judging import Judging
from kbroker.replication.logs_without_room import LogsWithoutRoom
from kbroker.replication.partition import Partition
from kbroker.replication.pending_roles import COMPARED_AT_ONCE, PendingRoles
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker._fast.base.slices import Pace
    from kbroker.config import LogConfig
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage
    from kbroker.replication.fetchers import Fetchers
    from kbroker.replication.partition import IsrChanges
    from kbroker.replication.replica_selector import RackAwareSelector
    from kbroker.replication.replication_traffic import ReplicationTraffic
    from kbroker.storage.log.group_commit import CommittedLog
    from kbroker.storage.log.log_validator import AnalyzedBatch, AppendOrigin
    from kbroker.storage.log.log_values import AppendResult
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")

NAMED_PROBLEMS = 5


class ReplicaManager:
    """`log_config(topic_configs)` merges a topic's own settings with the broker's."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self.log_manager = log_manager
        self._log_config = log_config
        self.topics: dict[str, dict[int, Partition]] = {}
        self.followed: dict[TopicPartition, Partition] = {}
        self.names: dict[bytes, str] = {}
        self._failed: set[TopicPartition] = set()
        self.given_up: Container[TopicPartition] = ()
        self._pending_logs: dict[TopicPartition, tuple[TopicImage, PartitionImage]] = {}
        self.pending_roles = PendingRoles()
        self._dying: dict[TopicPartition, None] = {}
        self._working = False
        self._closed = False
        self.purgatory = FetchPurgatory(loop)
        self.isr_changes: IsrChanges | None = None
        self.selector: RackAwareSelector | None = None
        self.traffic: ReplicationTraffic | None = None
        self.fetchers: Fetchers | None = None
        self.exists: Callable[[str, int], bool] = self._has_topic
        self.judging = Judging()
        self._watching: dict[str, Callable[[int], None]] = {}
        self.without_room = LogsWithoutRoom(loop, self._apply_image)
        self.late_logs = 0
        """How many logs were made later than they were wanted."""

    # Following the metadata

    def apply(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        """Bring partitions and logs in line with a new image."""
        pace = self.log_manager.slices.pace()
        for topic in delta.deleted:
            self._forget(topic)
        for topic in delta.created:
            self._apply_topic(topic, topic.partitions, pace, defers=self.fetchers is not None)
        for change in delta.changed:
            self._apply_change(old.topics.get(change.new.name), change.new, pace)
        self._work(pace)

    def _apply_change(self, old: TopicImage | None, new: TopicImage, pace: Pace) -> None:
        is_much = pace.due() or len(new.partitions) > COMPARED_AT_ONCE
        if old is not None and self.fetchers is not None and is_much:
            note_id(self.names, new)
            self.pending_roles.put_topic(old, new)
        else:
            images = altered(old and self.pending_roles.before(old), new)
            self._apply_topic(new, images, pace, defers=self.fetchers is not None)

    def apply_image(self, image: ClusterImage) -> None:
        """Lead what the image at start-up says, each partition with the log that was loaded for it."""
        pace = self.log_manager.slices.pace()
        for topic in image.topics.values():
            self._apply_topic(topic, topic.partitions, pace, defers=False)
        self._work(pace)

    def _apply_topic(self, topic: TopicImage, images: Iterable[PartitionImage], pace: Pace, *, defers: bool) -> None:
        self.topics.setdefault(topic.name, {})
        note_id(self.names, topic)
        for image in images:
            if defers and pace.due():
                self.pending_roles.put(topic, image)
            else:
                self.pending_roles.discard(topic, image)
                self._apply_image(topic, image, pace)

    def _apply_image(self, topic: TopicImage, image: PartitionImage, pace: Pace | None = None) -> None:
        config = self._log_config(topic.configs)
        if self.fetchers is None:
            self._apply_leadership(topic, image, config, pace)
        else:
            self._apply_replica(topic, image, config, pace, self.fetchers)

    def _apply_replica(
        self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None, fetchers: Fetchers
    ) -> None:
        """Where others lead, too: a follower copies, and a replica that is elsewhere by now is deleted."""
        topic_partition = TopicPartition(topic.name, image.partition)
        known = self.hosted(topic_partition)
        if known is not None and (known.leader_epoch, known.leader_id) != (image.leader_epoch, image.leader):
            # Before anything else changes: no answer to a fetch of the old epoch may be appended.
            fetchers.forget(topic_partition)
            known = None
        is_lost = topic_partition in self._failed and self.may_lie_elsewhere(topic_partition)
        if is_lost and self._node_id in image.replicas:
            # The controller may not have heard of it yet.  Made anew the log would be empty, and might lead.
            return
        self._apply_leadership(topic, image, config, pace)
        if self._node_id not in image.replicas:
            if self.log_manager.get_log(topic_partition) is not None:
                self.drop(topic_partition, delete=True)
            return
        followed = self.followed.get(topic_partition)
        if followed is not None and followed is not known:
            fetchers.follow(followed)

    def watch_leadership(self, topic: str, changed: Callable[[int], None]) -> None:
        """Have `changed(index)` called when this broker begins to lead a partition of the topic, and when it ends."""
        self._watching[topic] = changed

    def leads(self, topic: str, index: int) -> bool:
        """Whether this broker leads the partition, with a log or with one that is still to be made."""
        return index in self.topics.get(topic, ()) or self.is_log_pending(topic, index)

    def _apply_leadership(self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None) -> None:
        """Lead or follow one partition, or do neither, as its image says."""
        led = self.leads(topic.name, image.partition)
        self._lead_or_follow(topic, image, config, pace)
        self._report_leadership(topic.name, image.partition, led)

    def _report_leadership(self, topic: str, index: int, led: bool) -> None:
        """`led`: whether this broker led the partition before what has just changed."""
        watching = self._watching.get(topic)
        if watching is not None and led != self.leads(topic, index):
            watching(index)

    def _lead_or_follow(self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None) -> None:
        known = self.topics[topic.name]
        topic_partition = TopicPartition(topic.name, image.partition)
        is_offline = self._node_id in image.offline_replicas
        if is_offline or image.leader != self._node_id:
            if is_offline:
                # First, so that the fetches that wait are answered with the reason.
                self._failed.add(topic_partition)
                self.followed.pop(topic_partition, None)
            partition = self._stop_leading(topic.name, known, image.partition)
            may_follow = not is_offline and topic_partition not in self.given_up
            if may_follow and image.leader >= 0 and self._node_id in image.replicas:
                self._follow(topic, image, config, partition)
            return
        partition = known.get(image.partition) or self.followed.pop(topic_partition, None)
        if partition is not None:
            known[image.partition] = partition
            self.log_manager.configure(partition.log, config)
            partition.log.assign_leader_epoch(image.leader_epoch)
            partition.follow(image)
            # A waiting fetch that named the epoch before has to be answered with the error for it.
            if self.isr_changes is not None:
                self.purgatory.mark(partition)
            return
        found = topic_partition not in self._dying and self.log_manager.get_log(topic_partition) is not None
        if found or pace is None or not pace.due():
            self._open_led(topic, image, config)
            return
        self._pending_logs[topic_partition] = (topic, image)

    # What the controller of a cluster says

    def hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica that this broker has, whether it leads or follows."""
        led = self.topics.get(topic_partition.topic, {}).get(topic_partition.partition)
        return led or self.followed.get(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of the partition is lost with its disk."""
        return topic_partition in self._failed

    def may_lie_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition may be in a directory that has failed."""
        return bool(self.log_manager.failures.offline) and self.log_manager.get_log(topic_partition) is None

    def lose(self, topic_partition: TopicPartition) -> None:
        """The disk of a partition has failed: this broker neither leads nor follows it, and calls it offline."""
        self._failed.add(topic_partition)
        self.drop(topic_partition, delete=False)

    def become_replica(self, topic: TopicImage, image: PartitionImage) -> Partition:
        """Lead or follow a partition from now on; a replica without a leader follows.  KafkaStorageError where its log
        cannot be made, InconsistentTopicIdError where the disk has another topic's."""
        topic_partition = TopicPartition(topic.name, image.partition)
        self.topics.setdefault(topic.name, {})
        note_id(self.names, topic)
        self._apply_leadership(topic, image, self._log_config(topic.configs), None)
        if image.leader < 0:
            self._follow(topic, image, self._log_config(topic.configs), self.followed.get(topic_partition))
        partition = self.hosted(topic_partition)
        if partition is None:
            self.without_room.told(topic_partition)
            raise KafkaStorageError(f"the log of {topic_partition} could not be made")
        return partition

    def retry_refused(self) -> None:
        """There is room again: partitions whose new logs found none are no longer offline, as a controller may ask."""
        self._failed -= self.without_room.refused
        self.without_room.refused.clear()

    def drop(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Neither lead nor follow a partition any more; its log stays, unless `delete`."""
        known = self.topics.get(topic_partition.topic, {})
        led = self.leads(topic_partition.topic, topic_partition.partition)
        partition = self._stop_leading(topic_partition.topic, known, topic_partition.partition)
        self._report_leadership(topic_partition.topic, topic_partition.partition, led)
        partition = self.followed.pop(topic_partition, partition)
        if partition is not None:
            self.purgatory.expire_partition(partition)
        if not delete:
            return
        self._failed.discard(topic_partition)
        self._dying[topic_partition] = None  # Its log may have been made in part.
        self._delete(topic_partition)

    def note_topics(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """Take over ids and settings of topics from the metadata."""
        for topic in (*delta.created, *(change.new for change in delta.changed)):
            self.topics.setdefault(topic.name, {})
            note_id(self.names, topic)
        # Topics of which only the leaders have changed, of which there are many when a broker is gone, need no look.
        altered = [*delta.created, *(new for old, new in delta.changed if new.configs != old.configs)]
        if not altered and not delta.deleted:
            return
        followed: dict[str, list[Partition]] = {}
        for name, partition in self.followed.items():
            followed.setdefault(name.topic, []).append(partition)
        for topic in altered:
            config = self._log_config(topic.configs)
            for partition in (*self.topics[topic.name].values(), *followed.get(topic.name, ())):
                self._configure(partition, config)
        for topic in delta.deleted:
            self.names.pop(topic.topic_id, None)
            if not self.topics.get(topic.name) and topic.name not in followed:
                self.topics.pop(topic.name, None)

    def reconfigure(self, topics: Mapping[str, TopicImage]) -> None:
        """The broker's settings have changed: those of all logs follow."""
        for partition in (*self, *self.followed.values()):
            topic = topics.get(partition.topic)
            self._configure(partition, self._log_config({} if topic is None else topic.configs))

    def _configure(self, partition: Partition, config: LogConfig) -> None:
        self.log_manager.configure(partition.log, config)
        partition.reconfigured()

    def _open_led(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        partition = self._open(topic, image, config)
        if partition is not None:
            assert partition.topic_partition not in self.followed, f"{partition} is followed, and would be led, too"
            self.topics[topic.name][image.partition] = partition

    def _open(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> Partition | None:
        """The partition over its log, which is made if need be; None where the disk refuses it."""
        topic_partition = TopicPartition(topic.name, image.partition)
        self._pending_logs.pop(topic_partition, None)
        self._delete(topic_partition)
        is_known = topic_partition in self._failed  # It is tried again every second.
        try:
            log = self.log_manager.get_or_create_log(topic_partition, topic.topic_id, config, is_known=is_known)
        except (OSError, KafkaStorageError) as error:
            if not is_known:
                text = "the log of %s could not be made; it answers KAFKA_STORAGE_ERROR: %s"
                logger.error(text, topic_partition, error)
            self._failed.add(topic_partition)
            self.without_room.note(topic_partition, topic, image, error)
            return None
        if is_known:
            self.late_logs += 1
            logger.warning("the log of %s is there by now", topic_partition)
            self._failed.discard(topic_partition)
        self.without_room.forget(topic_partition)
        if image.leader == self._node_id:
            log.assign_leader_epoch(image.leader_epoch)
        return Partition(
            topic.name, image.partition, topic.topic_id, log, self._node_id, image, self.purgatory, self.isr_changes
        )

    def _follow(self, topic: TopicImage, image: PartitionImage, config: LogConfig, known: Partition | None) -> None:
        """Follow a partition that another broker leads; `known`: the one that was led here until now."""
        topic_partition = TopicPartition(topic.name, image.partition)
        partition = known or self.followed.get(topic_partition)
        if partition is None:
            partition = self._open(topic, image, config)
            if partition is None:
                return
        else:
            self.log_manager.configure(partition.log, config)
            partition.follow(image)
            # A consumer's fetch that waits here may name an epoch that is over by now.
            self.purgatory.mark(partition)
        assert not self.leads(topic.name, image.partition), f"{partition} is led, and would be followed, too"
        self.followed[topic_partition] = partition

    def _work(self, pace: Pace) -> None:
        """Take roles, delete logs, then make those that no request has asked for yet, a few at a time."""
        while self._has_work and not pace.due():
            self._step(pace)
        if self._has_work and not self._working:
            self._working = True
            pace.then(partial(self._continue_work, pace))

    def _continue_work(self, pace: Pace) -> None:
        self._working = False
        if self._has_work:
            self._step(pace)
        self._work(pace)

    @property
    def _has_work(self) -> bool:
        return bool(self.pending_roles or self._dying or self._pending_logs)

    def _step(self, pace: Pace) -> None:
        if self.pending_roles:
            if (role := self.pending_roles.pop_first()) is not None:
                self._apply_image(*role, pace)
        elif self._dying:
            self._delete(next(iter(self._dying)))
        else:
            topic, image = next(iter(self._pending_logs.values()))
            self._open_led(topic, image, self._log_config(topic.configs))

    def _delete(self, topic_partition: TopicPartition) -> None:
        """Take a log away whose topic was deleted; nothing where there is none."""
        if topic_partition not in self._dying:
            return
        del self._dying[topic_partition]
        try:
            self.log_manager.delete_log(topic_partition)
        except KafkaStorageError as error:
            # The topic is gone all the same; the next start sets the directory aside.
            logger.error("%s stays on disk: %s", topic_partition, error)

    def _stop_leading(self, topic: str, known: dict[int, Partition], index: int) -> Partition | None:
        self._pending_logs.pop(TopicPartition(topic, index), None)
        self.without_room.forget(TopicPartition(topic, index))
        partition = known.pop(index, None)
        if partition is not None:
            self.purgatory.expire_partition(partition)
            self._refuse_waits(partition, NotLeaderOrFollowerError(), for_good=True)
        return partition

    def _refuse_waits(self, partition: Partition, error: KafkaError, *, for_good: bool = False) -> None:
        """Produces and coordinators that wait for a commit are refused, behind the change that takes the log away."""
        for settled in partition.take_waits(for_good=for_good):
            self.purgatory.ready.put(settled, error)

    def _forget(self, topic: TopicImage) -> None:
        self.pending_roles.forget(topic)
        if self._pending_logs:
            for index in range(len(topic.partitions)):
                self._pending_logs.pop(TopicPartition(topic.name, index), None)
        partitions = self.topics.pop(topic.name, {})
        self.names.pop(topic.topic_id, None)
        for failed in [each for each in self._failed if each.topic == topic.name]:
            self.without_room.forget(failed)
            self._failed.discard(failed)
            self._dying[failed] = None  # Its log may have been made in part.
        led = list(partitions.values())
        if self.followed:
            names = (TopicPartition(topic.name, index) for index in range(len(topic.partitions)))
            led += [self._stop_following(name) for name in names if name in self.followed]
        for partition in led:
            self.purgatory.expire_partition(partition)
            self._refuse_waits(partition, NotLeaderOrFollowerError(), for_good=True)
            self._dying[partition.topic_partition] = None

    def _stop_following(self, name: TopicPartition) -> Partition:
        if self.fetchers is not None:
            self.fetchers.forget(name)
        return self.followed.pop(name)

    def close(self) -> None:
        """Lead nothing any more: a batch that a thread is still checking then finds no partition to be written to."""
        self._closed = True
        self.without_room.close()
        for topic_partition in list(self._dying):
            self._delete(topic_partition)
        self.topics.clear()
        self.followed.clear()
        self._pending_logs.clear()
        self.pending_roles.clear()

    # Lookup

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that sends a client to look elsewhere."""
        partitions = self.topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._explain_absence(topic, index)

    def replica(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads or follows it; else the error of `partition`."""
        followed = self.followed.get(TopicPartition(topic, index)) if self.followed else None
        return self.partition(topic, index) if followed is None else followed

    def sent_to_follower(self, replica_id: int, topic: str, index: int, size_bytes: int) -> None:
        """So many bytes of a partition's records are in an answer to a follower."""
        partition = self.topics.get(topic, {}).get(index)
        if partition is not None and self.traffic is not None:
            self.traffic.sent(partition, replica_id, size_bytes)

    def problems(self) -> Iterator[Problem]:
        """For readiness: partitions that are offline."""
        count = len(self._failed)
        if count:
            named = ", ".join(map(str, sorted(self._failed)[:NAMED_PROBLEMS]))
            serves_any = bool(self._pending_logs) or any(self.topics.values())
            text = f"{count} partitions are offline" if count > 1 else "1 partition is offline"
            yield Problem(f"{text}: {named}{', …' if count > NAMED_PROBLEMS else ''}", stops_service=not serves_any)

    @property
    def offline_count(self) -> int:
        """Partitions that have no log because of a disk."""
        return len(self._failed)

    def is_log_pending(self, topic: str, index: int) -> bool:
        """Whether the partition's log is still to be made, and so is empty."""
        return TopicPartition(topic, index) in self._pending_logs

    def _explain_absence(self, topic: str, index: int) -> Partition:
        if (role := self.pending_roles.pop(TopicPartition(topic, index))) is not None:
            self._apply_image(*role)
            return self.partition(topic, index)
        pending = self._pending_logs.get(TopicPartition(topic, index))
        if pending is not None:
            self._open_led(*pending, self._log_config(pending[0].configs))
            return self.partition(topic, index)
        if TopicPartition(topic, index) in self._failed:
            raise KafkaStorageError(f"Partition {topic}-{index} is offline")
        if self._closed:
            raise NotLeaderOrFollowerError()
        if not self.exists(topic, index):
            raise UnknownTopicOrPartitionError()
        raise NotLeaderOrFollowerError()

    def _has_topic(self, topic: str, index: int) -> bool:
        return 0 <= index < len(self.topics.get(topic, ()))

    def topic_name(self, topic_id: bytes) -> str:
        """The name behind a topic id.  UnknownTopicIdError when no topic has it."""
        name = self.names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError()
        return name

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.topics.values():
            yield from partitions.values()

    # Data

    def append(
        self,
        partition: Partition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin,
        analyzed: AnalyzedBatch | None = None,
        guard: VerificationGuard = NO_GUARD,
    ) -> AppendResult:
        """Append one batch as leader.  Whether it may be acknowledged says `Partition.is_acknowledged`."""
        log = partition.log
        try:
            result = log.append_as_leader(
                records, partition.leader_epoch, origin=origin, analyzed=analyzed, guard=guard
            )
        except OSError as error:
            raise log.storage_error("appending records", error) from error
        if not result.duplicate:
            partition.appended()
        return result

    def _led(self, log: CommittedLog) -> Partition | None:
        partition = self.topics.get(log.topic_partition.topic, {}).get(log.topic_partition.partition)
        return partition if partition is not None and partition.log is log else None

    def on_durable(self, log: CommittedLog) -> None:
        """An fsync has covered more of a log whose appends wait for that."""
        partition = self._led(log)
        if partition is not None:
            partition.advance()

    def on_refused(self, log: CommittedLog, error: KafkaError) -> None:
        """What a log holds and is not durable will not be: refuse what waits for that."""
        partition = self._led(log)
        if partition is not None:
            self._refuse_waits(partition, error)
