"""A broker of a KRaft cluster whose controllers are other nodes: it follows the metadata log.

The broker registers when its logs are open and its ports are known.  Until its registration is in its image it leads
and follows nothing: the log tells of its earlier lives, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
from kbroker.assembly.membership.replicated_membership import ReplicatedMembership
from kbroker.assembly.membership.replication_parts import QuorumReach
from kbroker.assembly.membership.settings import NOT_FORMATTED, inter_broker_listener
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.directory_assignments import DirectoryAssignments, recorded_directory
from kbroker.cluster.kraft.forwarding import Forwarding
from kbroker.cluster.kraft.kraft_controller import KRaftController
from kbroker.cluster.kraft.member import KRaftMember, previous_epoch
from kbroker.cluster.member import unless_stopping
from kbroker.handlers import dispatch
from kbroker.handlers.cluster.forwarding_view import ForwardingView
from kbroker.metadata.image import NO_CONTROLLER
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.metrics.kafka_quorum import FETCHED
from kbroker.periodic import PeriodicTask
from kbroker.replication.leader_changes import report_at_start
from kbroker.replication.stray_replicas import replicas_deleted, stray_replicas
from kbroker.storage.directories.directory_plans import MoveTotals
from kbroker.storage.directories.log_dirs import NO_EPOCH, LogDirError
from kbroker.storage.manager.known_directories import claim_directories
from kbroker.types import LOST_DIRECTORY, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.client import Transport
    from kbroker.cluster.requests import ReplicaReport
    from kbroker.config import BrokerConfig
    from kbroker.handlers.cluster.cluster_view import ClusterView
    from kbroker.handlers.table import Handler
    from kbroker.metadata.image import ClusterImage, MetadataDelta, TopicImage
    from kbroker.metrics.families import Values
    from kbroker.metrics.recent import Counters
    from kbroker.network.listener import Listener
    from kbroker.storage.directories.log_dirs import LogDir, OpenedDirs
    from kbroker.types import TopicPartition

DIRECTORIES_INTERVAL_MS = 10_000


class KRaftMembership(ReplicatedMembership):
    """See `ClusterMembership`.  `make_member` is given the cluster's id and the epoch of this broker's last life."""

    keeps_metadata = False
    shows_losses = False
    watches_addresses = False
    _directories: DirectoryAssignments
    _looked_after: tuple[MoveTotals, int] | None = (MoveTotals(), 0)
    _member: KRaftMember

    def __init__(
        self, broker: BrokerParts, make_member: Callable[[str, int], KRaftMember], transport: Transport
    ) -> None:
        self._broker = broker
        self._make_member = make_member
        self._transport = transport
        self._has_member = False

    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        """The metadata as the active controller has committed them.

        LogDirError where no directory is formatted, or the metadata cannot be followed.
        """
        broker, manager = self._broker, self._broker.log_manager
        if dirs.cluster_id is None:
            raise LogDirError(NOT_FORMATTED)
        claim_directories(manager, dirs.cluster_id)
        last = previous_epoch([each.broker_epoch for each in manager.online_directories()])
        manager.begin_epoch(last, NO_EPOCH)
        member = self._member = self._registered = self._make_member(dirs.cluster_id, last)
        self._has_member = True
        member.observer.start()
        try:
            await unless_stopping(broker.stopping, member.observer.first_high_watermark())
        except MetadataLogError as error:
            raise LogDirError(str(error)) from error
        return member.metadata.image

    def connect(self, parts: MetadataParts) -> None:
        member, broker = self._member, self._broker
        replication = self._replicate(
            parts, inter_broker_listener(broker.config), QuorumReach(self._transport, member.place)
        )
        self.controller = KRaftController(
            replication.channel,
            member.metadata,
            parts.cache,
            parts.settings,
            member.disks_failed,
            self._most_replicas,
        )
        settings = ClientSettings(str(broker.config.node_id), negotiates=True)
        self._forwarding = ControllerClient(broker.loop, self._transport, member.place, settings)
        self.forwarding = Forwarding(self._forwarding)
        self._directories = DirectoryAssignments(
            broker.loop,
            broker.slices,
            replication.channel,
            self.broker,
            lambda: parts.cache.image,
            self._directory_of,
            self._awaits_log,
        )
        member.metadata.attach(parts.cache)

    def _most_replicas(self) -> int | None:
        """One where this node is the whole cluster, as settings and the log say."""
        config, brokers = self._broker.config, self._parts.cache.image.brokers
        return 1 if config.is_quorum_of_one and not brokers.keys() - {config.node_id} else None

    async def catch_up(self) -> ClusterImage:
        return self._parts.cache.image

    def handlers(self, listener: str) -> Sequence[Handler]:
        return dispatch.forwarding_rows()

    def view(self) -> ClusterView:
        assert self.forwarding is not None, "before `connect`"
        config = self._broker.config
        # Other machines may not know this one's name, under which it is registered where settings say no other.
        dialled = config.is_quorum_of_one and not config.advertised_listeners
        return ForwardingView(self.forwarding, shows_dialled=dialled)

    async def report_logs(self) -> None:
        """Nothing is reported before the broker is registered (`prepare`)."""
        self._attach()
        self._parts.replicas.roles.fetchers = self._replication.fetchers
        self._hand_over(self)

    async def prepare(self, listeners: Sequence[Listener]) -> None:
        """Register, and take the roles that the log says once it is as new as the controllers': before that a broker
        that was away would answer by the topics, leaders and ACLs of its last life.  Kafka's broker waits, too."""
        broker, member = self._broker, self._member
        await unless_stopping(broker.stopping, member.begin(self._own(listeners)))
        self._take_roles()
        broker.log_manager.begin_epoch(member.epoch, NO_EPOCH)
        await self._directories.look_at_all()

    # Roles

    def _take_roles(self) -> None:
        """Apply the roles of the metadata log from now on.  Logs whose replica has moved away are retired as strays."""
        parts, manager, node_id = self._parts, self._broker.log_manager, self._broker.config.node_id
        cache, replicas = parts.cache, parts.replicas
        strays = stray_replicas(cache.image, node_id, manager.logs, lambda _name: False, all_have_ids=True)
        for name, reason in list(strays):
            manager.retire_as_stray(name, reason)
        for name in replicas_deleted(cache.image, manager.logs):
            replicas.roles.drop(name, delete=True)
        for name in self._out_of_reach(cache.image):
            replicas.roles.lose(name)
        replicas.roles.apply_image(cache.image)
        cache.subscribe(self._drop_deleted)
        cache.subscribe(replicas.roles.apply)
        cache.subscribe(self._directories.follow)

    def _out_of_reach(self, image: ClusterImage) -> list[TopicPartition]:
        """Replicas without a log whose log may be in a directory that does not work."""
        node_id = self._broker.config.node_id
        working = set(self._log_dirs())
        missing = report_at_start(image, node_id, self._broker.log_manager).offline
        return [
            name
            for name in missing
            if recorded_directory(image.topics[name.topic].partitions[name.partition], node_id) not in working
        ]

    def _drop_deleted(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """Logs of deleted topics without a role here: a partition without a leader has none."""
        for topic in delta.deleted:
            for name in self._held(topic):
                self._parts.replicas.roles.drop(name, delete=True)

    def _held(self, topic: TopicImage) -> list[TopicPartition]:
        replicas, logs = self._parts.replicas, self._broker.log_manager.logs
        names = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        return [
            name
            for name in names
            if name in logs and logs[name].topic_id == topic.topic_id and replicas.hosted(name) is None
        ]

    # Directories

    def _log_dirs(self) -> list[bytes]:
        return directory_ids(self._broker.log_manager.online_directories())

    def _directory_of(self, name: TopicPartition) -> bytes | None:
        replicas = self._parts.replicas
        if name in replicas.roles.given_up or (name in replicas.logs.without_room and self._may_be_led_elsewhere(name)):
            return LOST_DIRECTORY
        log = self._broker.log_manager.get_log(name)
        if log is None:
            return None
        for each in self._broker.log_manager.online_directories():
            if each.path == log.parent and each.meta is not None:
                return each.meta.directory_id
        return None

    def _awaits_log(self, topic: str, index: int) -> bool:
        """Whether a replica without a log may get one yet: its role is not taken, or its log is not made."""
        replicas = self._parts.replicas
        name = TopicPartition(topic, index)
        return name in replicas.roles.pending or replicas.logs.is_deferred(name)

    def _may_be_led_elsewhere(self, name: TopicPartition) -> bool:
        topic = self._parts.cache.image.topics.get(name.topic)
        isr = () if topic is None else topic.partitions[name.partition].isr
        return any(each != self.node_id and self.is_alive(each) for each in isr)

    # What a handover needs

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker may take over.  None does under a metadata.version of before directories (Kafka 3.7): the
        controllers could not hear of it."""
        own = self._parts.cache.image.brokers.get(self.node_id)
        return own is not None and bool(own.log_dirs) and super().is_alive(node_id)

    async def report(self, report: ReplicaReport) -> None:
        """The controllers are to hear that replicas here are in no directory that works."""
        self._directories.look(report.offline)

    def renew(self) -> None:
        """The controllers are to hear where the replicas are that were handed over."""
        self._looked_after = None

    async def figures(self, pace: Pace) -> Values:
        member, now_ms = self._member, self._broker.clock.now_ms()
        observer, metadata = member.observer, member.metadata
        leader = observer.leader
        own = metadata.image.brokers.get(self._broker.config.node_id)
        return {
            **await super().figures(pace),
            "kbroker_broker_fenced": float(own is None or own.is_fenced),
            "kbroker_metadata_leader": NO_CONTROLLER if leader is None else leader.node_id,
            "kbroker_metadata_leader_epoch": -1 if leader is None else leader.epoch,
            "kbroker_metadata_high_watermark": observer.high_watermark,
            "kbroker_metadata_log_end_offset": observer.log_end_offset,
            "kbroker_metadata_applied_offset": metadata.applied_offset,
            "kbroker_metadata_applied_lag_seconds": max(0, now_ms - metadata.applied_ms) / 1000,
            "kbroker_metadata_requests": observer.client.request_count,
            "kbroker_metadata_request_bytes": observer.client.request_bytes,
            "kbroker_metadata_answers": observer.client.answer_count,
            "kbroker_metadata_answer_bytes": observer.client.answer_bytes,
            "kbroker_metadata_fetch_age_seconds": max(0, now_ms - observer.last_fetch_ms) / 1000,
            **({} if self._broker.quorum is None else await self._broker.quorum.figures(pace)),
        }

    def counters(self) -> Counters:
        found = {**super().counters(), FETCHED: (self._member.observer.log_end_offset,)}
        return found if self._broker.quorum is None else {**found, **self._broker.quorum.counters()}

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        telling = PeriodicTask("tell where replicas are", DIRECTORIES_INTERVAL_MS, self._tell_directories)
        return (*super().periodic_tasks(), telling)

    async def _tell_directories(self) -> None:
        """Runs after replica moves and late log creation; metadata changes are handled in `follow`."""
        found = (self._broker.log_manager.plans.totals, self._parts.replicas.logs.late_count)
        if self._member.epoch >= 0 and found != self._looked_after:
            self._looked_after = found
            await self._directories.look_at_all()

    def lost(self, names: Collection[TopicPartition]) -> None:
        super().lost(names)
        self._member.disks_failed()

    def follow(self, config: BrokerConfig) -> None:
        super().follow(config)
        # The controllers are to hear of directories that take no new replicas.
        self._member.life.hasten()

    # The end

    async def leave(self) -> None:
        await self._member.leave()

    async def close(self) -> None:
        if not self._has_member:
            return
        if self._is_attached:
            self._directories.close()
            self._forwarding.close()
        if self._member.epoch >= 0:
            self._broker.log_manager.begin_epoch(self._member.epoch, NO_EPOCH)
        await super().close()


def directory_ids(directories: Sequence[LogDir]) -> list[bytes]:
    """The ids of log directories, in order."""
    return sorted(each.meta.directory_id for each in directories if each.meta is not None)
