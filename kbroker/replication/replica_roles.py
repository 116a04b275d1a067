"""What this broker leads and follows, as the metadata or a controller's requests say.

`apply` is a subscriber of the metadata cache, so a topic is usable the moment that it is visible.  Deleted partitions
are gone for all clients at once.  Where others lead, too, a delta may change thousands of roles: those that do not fit
into a slice are taken between other work, or when a request asks for the partition (`pending_roles`).  Until then the
broker answers as one that has not heard of the change, which followers, leaders and controllers tell by the leader
epoch.

Among the workers of a host it follows the metadata, too: `fetchers` copy what others lead.  In a cluster that ZooKeeper
keeps `apply` is not subscribed.  There the controller's requests (`leader_and_isr`) say what this broker leads and
follows, through `become_replica` and `drop`; `note_topics` takes over names and settings from the metadata.

Everything here runs on the event loop and nothing awaits between reading and writing the state of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError, NotLeaderOrFollowerError
from kbroker.metadata.image import altered, note_id
from kbroker.replication.partition import Partition
from kbroker.replication.pending_roles import COMPARED_AT_ONCE, PendingRoles
from kbroker.replication.replica_logs import ReplicaLogs
from kbroker.types import LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker._fast.base.slices import Pace
    from kbroker.config import LogConfig
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage
    from kbroker.replication.delayed_fetch import FetchPurgatory
    from kbroker.replication.fetchers import Fetchers
    from kbroker.replication.partition import IsrChanges
    from kbroker.storage.manager.log_manager import LogManager

    LeadershipListener = Callable[[int], None]


class ReplicaRoles:
    """`topics` has the partitions that are led, by topic and number, `followed` the others, `names` topics by id.

    `log_config(topic_configs)` merges a topic's own settings with the broker's.
    """

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        purgatory: FetchPurgatory,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._log_manager = log_manager
        self._log_config = log_config
        self._purgatory = purgatory
        self.topics: dict[str, dict[int, Partition]] = {}
        self.followed: dict[TopicPartition, Partition] = {}
        self.names: dict[bytes, str] = {}
        self.given_up: Container[TopicPartition] = ()
        self.pending = PendingRoles()
        self.logs = ReplicaLogs(node_id, log_manager, loop, self._take)
        self.isr_changes: IsrChanges | None = None
        self.fetchers: Fetchers | None = None
        self._listeners: dict[str, list[LeadershipListener]] = {}
        self._working = False

    # Following the metadata

    def apply(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        """Bring partitions and logs in line with a new image."""
        pace = self._log_manager.slices.pace()
        for topic in delta.deleted:
            self._forget(topic)
        for topic in delta.created:
            self._apply_topic(topic, topic.partitions, pace, defers=self.fetchers is not None)
        for change in delta.changed:
            self._apply_change(old.topics.get(change.new.name), change.new, pace)
        self._work(pace)

    def apply_image(self, image: ClusterImage) -> None:
        """Lead what the image at start-up says, each partition with the log that was loaded for it."""
        pace = self._log_manager.slices.pace()
        for topic in image.topics.values():
            self._apply_topic(topic, topic.partitions, pace, defers=False)
        self._work(pace)

    def _apply_change(self, old: TopicImage | None, new: TopicImage, pace: Pace) -> None:
        is_much = pace.due() or len(new.partitions) > COMPARED_AT_ONCE
        if old is not None and self.fetchers is not None and is_much:
            note_id(self.names, new)
            self.pending.put_topic(old, new)
        else:
            images = altered(old and self.pending.before(old), new)
            self._apply_topic(new, images, pace, defers=self.fetchers is not None)

    def _apply_topic(self, topic: TopicImage, images: Iterable[PartitionImage], pace: Pace, *, defers: bool) -> None:
        self.topics.setdefault(topic.name, {})
        note_id(self.names, topic)
        for image in images:
            if defers and pace.due():
                self.pending.put(topic, image)
            else:
                self.pending.discard(topic, image)
                self._take(topic, image, pace)

    def _take(self, topic: TopicImage, image: PartitionImage, pace: Pace | None = None) -> None:
        config = self._log_config(topic.configs)
        if self.fetchers is None:
            self._take_reported(topic, image, config, pace)
        else:
            self._take_replicated(topic, image, config, pace, self.fetchers)

    def _take_replicated(
        self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None, fetchers: Fetchers
    ) -> None:
        """Where others lead, too: a follower copies, and a replica that is elsewhere by now is deleted."""
        topic_partition = TopicPartition(topic.name, image.partition)
        known = self.hosted(topic_partition)
        if known is not None and (known.leader_epoch, known.leader_id) != (image.leader_epoch, image.leader):
            # Before anything else changes: no answer to a fetch of the old epoch may be appended.
            fetchers.forget(topic_partition)
            known = None
        is_lost = topic_partition in self.logs.offline and self.logs.may_lie_elsewhere(topic_partition)
        if is_lost and self._node_id in image.replicas:
            # The controller may not have heard of it yet.  Made anew the log would be empty, and might lead.
            return
        self._take_reported(topic, image, config, pace)
        if self._node_id not in image.replicas:
            if self._log_manager.get_log(topic_partition) is not None:
                self.drop(topic_partition, delete=True)
            return
        followed = self.followed.get(topic_partition)
        if followed is not None and followed is not known:
            fetchers.follow(followed)

    # Listeners of leadership

    def subscribe(self, topic: str, changed: LeadershipListener) -> None:
        """Have `changed(index)` called when this broker begins to lead a partition of the topic, and when it ends."""
        self._listeners.setdefault(topic, []).append(changed)

    def leads(self, topic: str, index: int) -> bool:
        """Whether this broker leads the partition, with a log or with one that is still to be made."""
        return index in self.topics.get(topic, ()) or self.logs.is_deferred(TopicPartition(topic, index))

    def _take_reported(self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None) -> None:
        led = self.leads(topic.name, image.partition)
        self._lead_or_follow(topic, image, config, pace)
        self._report(topic.name, image.partition, led)

    def _report(self, topic: str, index: int, led: bool) -> None:
        """`led`: whether this broker led the partition before what has just changed."""
        listeners = self._listeners.get(topic)
        if listeners is not None and led != self.leads(topic, index):
            for changed in listeners:
                changed(index)

    # One partition

    def hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica that this broker has, whether it leads or follows."""
        led = self.topics.get(topic_partition.topic, {}).get(topic_partition.partition)
        return led or self.followed.get(topic_partition)

    def _lead_or_follow(self, topic: TopicImage, image: PartitionImage, config: LogConfig, pace: Pace | None) -> None:
        """Lead or follow one partition, or do neither, as its image says."""
        known, logs = self.topics[topic.name], self.logs
        topic_partition = TopicPartition(topic.name, image.partition)
        is_offline = self._node_id in image.offline_replicas
        if is_offline or image.leader != self._node_id:
            if is_offline:
                # First, so that the fetches that wait are answered with the reason.
                logs.offline.add(topic_partition)
                self.followed.pop(topic_partition, None)
            partition = self._stop_leading(topic.name, known, image.partition)
            may_follow = not is_offline and topic_partition not in self.given_up
            if may_follow and image.leader >= 0 and self._node_id in image.replicas:
                self._follow(topic, image, config, partition)
            return
        partition = known.get(image.partition) or self.followed.pop(topic_partition, None)
        if partition is not None:
            known[image.partition] = partition
            self._log_manager.configure(partition.log, config)
            partition.log.assign_leader_epoch(LeaderEpoch(image.leader_epoch))
            partition.follow(image)
            # A waiting fetch that named the epoch before has to be answered with the error for it.
            if self.isr_changes is not None:
                self._purgatory.mark(partition)
            return
        if logs.is_there(topic_partition) or pace is None or not pace.due():
            self._lead(topic, image, config)
            return
        logs.defer(topic, image)

    def _lead(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        partition = self._open(topic, image, config)
        if partition is not None:
            assert partition.topic_partition not in self.followed, f"{partition} is followed, and would be led, too"
            self.topics[topic.name][image.partition] = partition

    def _follow(self, topic: TopicImage, image: PartitionImage, config: LogConfig, known: Partition | None) -> None:
        """Follow a partition that another broker leads; `known`: the one that was led here until now."""
        topic_partition = TopicPartition(topic.name, image.partition)
        partition = known or self.followed.get(topic_partition)
        if partition is None:
            partition = self._open(topic, image, config)
            if partition is None:
                return
        else:
            self._log_manager.configure(partition.log, config)
            partition.follow(image)
            # A consumer's fetch that waits here may name an epoch that is over by now.
            self._purgatory.mark(partition)
        assert not self.leads(topic.name, image.partition), f"{partition} is led, and would be followed, too"
        self.followed[topic_partition] = partition

    def _open(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> Partition | None:
        log = self.logs.open(topic, image, config)
        if log is None:
            return None
        return Partition(
            topic.name, image.partition, topic.topic_id, log, self._node_id, image, self._purgatory, self.isr_changes
        )

    def _stop_leading(self, topic: str, known: dict[int, Partition], index: int) -> Partition | None:
        self.logs.forget(TopicPartition(topic, index))
        partition = known.pop(index, None)
        if partition is not None:
            self._refuse(partition)
        return partition

    def _refuse(self, partition: Partition) -> None:
        """What waits for a partition that is not led any more is answered, behind the change."""
        self._purgatory.expire_partition(partition)
        partition.refuse_waits(NotLeaderOrFollowerError(), for_good=True)

    # What the controller of a cluster says

    def become_replica(self, topic: TopicImage, image: PartitionImage) -> Partition:
        """Lead or follow a partition from now on; a replica without a leader follows.  KafkaStorageError where its log
        cannot be made, InconsistentTopicIdError where the disk has another topic's."""
        topic_partition = TopicPartition(topic.name, image.partition)
        self.topics.setdefault(topic.name, {})
        note_id(self.names, topic)
        self._take_reported(topic, image, self._log_config(topic.configs), None)
        if image.leader < 0:
            self._follow(topic, image, self._log_config(topic.configs), self.followed.get(topic_partition))
        partition = self.hosted(topic_partition)
        if partition is None:
            self.logs.without_room.refuse(topic_partition)
            raise KafkaStorageError(f"the log of {topic_partition} could not be made")
        assert self.leads(*topic_partition) != (topic_partition in self.followed), f"{partition} is led and followed"
        assert self.leads(*topic_partition) == (image.leader == self._node_id), (str(partition), image)
        assert (partition.leader_epoch, partition.leader_id) == (image.leader_epoch, image.leader), (partition, image)
        return partition

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of the partition is lost with its disk."""
        return topic_partition in self.logs.offline

    def may_lie_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition may be in a directory that has failed."""
        return self.logs.may_lie_elsewhere(topic_partition)

    def lose(self, topic_partition: TopicPartition) -> None:
        """The disk of a partition has failed: this broker neither leads nor follows it, and calls it offline."""
        self.logs.offline.add(topic_partition)
        self.drop(topic_partition, delete=False)

    def drop(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Neither lead nor follow a partition any more; its log stays, unless `delete`."""
        known = self.topics.get(topic_partition.topic, {})
        led = self.leads(topic_partition.topic, topic_partition.partition)
        partition = self._stop_leading(topic_partition.topic, known, topic_partition.partition)
        self._report(topic_partition.topic, topic_partition.partition, led)
        partition = self.followed.pop(topic_partition, partition)
        if partition is not None:
            self._purgatory.expire_partition(partition)
        assert self.hosted(topic_partition) is None and not self.leads(*topic_partition), f"{topic_partition} is left"
        if not delete:
            return
        self.logs.offline.discard(topic_partition)
        self.logs.take_away(topic_partition)
        self.logs.delete(topic_partition)

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
        self._log_manager.configure(partition.log, config)
        partition.reconfigured()

    def __iter__(self) -> Iterator[Partition]:
        """Those that are led."""
        for partitions in self.topics.values():
            yield from partitions.values()

    # Work that waits

    def take_late(self, topic_partition: TopicPartition) -> bool:
        """Take the role of a partition, or make its log, if either was put off; whether there was something to do."""
        if (role := self.pending.pop(topic_partition)) is not None:
            self._take(*role)
            assert topic_partition not in self.pending, f"{topic_partition} has a role that it has not taken"
            return True
        if (role := self.logs.deferred(topic_partition)) is not None:
            self._lead(*role, self._log_config(role[0].configs))
            assert not self.logs.is_deferred(topic_partition), f"{topic_partition}: its log is made again and again"
            return True
        return False

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
        return bool(self.pending) or self.logs.has_work

    def _step(self, pace: Pace) -> None:
        if self.pending:
            if (role := self.pending.pop_first()) is not None:
                self._take(*role, pace)
        elif (dying := self.logs.next_dying) is not None:
            self.logs.delete(dying)
        elif (role := self.logs.next_deferred) is not None:
            self._lead(*role, self._log_config(role[0].configs))

    def _forget(self, topic: TopicImage) -> None:
        """A topic was deleted."""
        self.pending.forget(topic)
        partitions = self.topics.pop(topic.name, {})
        self.names.pop(topic.topic_id, None)
        self.logs.delete_topic(topic)
        hosted = list(partitions.values())
        assert not self.pending or all(TopicPartition(topic.name, each) not in self.pending for each in partitions)
        if self.followed:
            names = (TopicPartition(topic.name, index) for index in range(len(topic.partitions)))
            hosted += [self._stop_following(name) for name in names if name in self.followed]
        for partition in hosted:
            self._refuse(partition)
            self.logs.take_away(partition.topic_partition)

    def _stop_following(self, name: TopicPartition) -> Partition:
        if self.fetchers is not None:
            self.fetchers.forget(name)
        return self.followed.pop(name)

    def close(self) -> None:
        """Lead nothing any more."""
        self.logs.close()
        self.topics.clear()
        self.followed.clear()
        self.pending.clear()
