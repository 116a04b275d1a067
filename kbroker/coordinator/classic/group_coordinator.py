"""The group coordinator: the interface to groups and their offsets for handlers, metrics and the broker.

    broker   start / stop / periodic_tasks
    members  join, sync, heartbeat, leave
    offsets  commit_offsets, offsets_of, delete_offsets
    admin    describe, list_groups, delete_group
    metrics  summaries

Everything runs on the event loop and nothing awaits: JoinGroup and SyncGroup, which may have to wait for other members,
answer through a callback.  Methods raise `KafkaError` (what concerns the whole request) or return codes per item.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kbroker.clock import Clock
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_kind import KindServer
from kbroker.coordinator.classic.group_members import GroupMembers
from kbroker.coordinator.classic.group_registry import GroupRegistry
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.messages import (
    DescribedGroup,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    ListedGroup,
    PartitionCommit,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.classic.offset_commits import Committer, OffsetCommits
from kbroker.coordinator.classic.offsets import OffsetTable
from kbroker.coordinator.classic.rebalance import GroupLimits, Rebalances
from kbroker.coordinator.classic.refusals import Refusals
from kbroker.coordinator.runtime.plan import TransactionalProducer
from kbroker.coordinator.runtime.shard import StateLog
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    KafkaError,
    UnknownMemberIdError,
)
from kbroker.metrics.sources import GroupSummary
from kbroker.periodic import PeriodicTask

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta

logger = logging.getLogger("kbroker.groups")

CLASSIC = "classic"

_MINUTE_MS = 60_000
_EXPIRY_PORTION = 64


class GroupCoordinator:
    """Coordinates every group whose partition of the state topic this broker leads.

    `may_be_superseded()`: see `Refusals`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        state_log: StateLog,
        metadata_cache: MetadataCache,
        slices: Slices,
        may_be_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._limits = GroupLimits(
            config.get("group.min.session.timeout.ms"),
            config.get("group.max.session.timeout.ms"),
            config.get("group.initial.rebalance.delay.ms"),
            config.get("group.max.size"),
        )
        self._check_interval_ms: int = config.get("offsets.retention.check.interval.ms")
        self._metadata_cache = metadata_cache
        self._slices = slices
        self._running = False
        self._kinds: dict[str, KindServer] = {}
        self.refusals = Refusals(may_be_superseded)
        self.registry = GroupRegistry(
            config.node_id,
            state_log,
            clock,
            loop.call_later,
            slices,
            config.get("offsets.load.buffer.size"),
            config.get("offsets.topic.compression.codec"),
            self._on_group_loaded,
            self.refusals,
        )
        self.rebalances = Rebalances(self._limits, clock, loop.call_later, self.registry)
        self._members = GroupMembers(self._limits, self.rebalances, self.registry)
        self._commits = OffsetCommits(
            self.registry,
            self.rebalances,
            clock,
            config.get("offset.metadata.max.bytes"),
            config.get("offsets.retention.minutes") * _MINUTE_MS,
        )
        self.registry.forget_topics = self._commits.forget_topics

    def serve_kind(self, group_type: str, server: KindServer) -> None:
        """Groups of a newer kind are served by `server`; before `start`."""
        self._kinds[group_type] = server

    # The broker

    def start(self) -> None:
        """Begin to load what is stored, and follow the metadata from now on.  Call once the logs are open, after
        the creator of logs has subscribed to the metadata."""
        self._running = True
        self.registry.open(self._metadata_cache)
        self._metadata_cache.subscribe(self._on_metadata)

    def stop(self) -> None:
        """Serve nothing any more; parked requests are answered."""
        self._running = False
        self.registry.close()

    def periodic_tasks(self) -> list[PeriodicTask]:
        """What the broker must run from time to time."""
        return [PeriodicTask("expire committed offsets", self._check_interval_ms, self.expire_offsets)]

    def _on_metadata(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        if self._running and delta.deleted:
            self.registry.topics_deleted(frozenset(topic.name for topic in delta.deleted))

    def _server(self, group: Group) -> KindServer | None:
        return None if group.kind is None else self._kinds.get(group.kind.group_type)

    def _on_group_loaded(self, group: Group) -> None:
        server = self._server(group)
        if server is not None:
            server.on_loaded(group.group_id)
        for member in group.members.values():
            self.rebalances.watch(group, member)
        if len(group.members) > self._limits.max_size:
            self.rebalances.prepare(
                group,
                f"Freshly-loaded group {group} (size {len(group.members)}) is over capacity {self._limits.max_size}.",
            )

    # Members

    def can_store(self, sizes: Iterable[int]) -> bool:
        """Whether metadata of these sizes may become part of a group (`GroupRegistry.can_store`)."""
        return self.registry.can_store(sizes)

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup; `reply` is called once, now or when the generation forms."""
        self._join(request, self.refusals.joined(reply))

    def _join(self, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        if not request.group_id:
            reply(JoinResult(ErrorCode.INVALID_GROUP_ID, member_id))
            return
        if not self._limits.min_session_timeout_ms <= request.session_timeout_ms <= self._limits.max_session_timeout_ms:
            reply(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
            return
        try:
            group = self.registry.find(request.group_id)
            if group is None and member_id:
                reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
                return
            if group is not None and group.kind is not None:
                server = self._server(group)
                if not group.kind.is_empty and server is not None:
                    server.join(request, reply)
                    return
                if not group.kind.is_empty:
                    reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
                    return
                # No member of the newer protocol is left.
                self.registry.append(group, group.kind.tombstones())
                group.become(None)
            is_new = group is None
            if group is None:
                group = self.registry.create(request.group_id)
        except KafkaError as error:
            reply(JoinResult(error.code, member_id))
            return
        self._members.join(group, request, reply)
        if is_new:
            self.registry.discard_unused(group)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup; `reply` is called once, now or when the leader's assignment is stored."""
        reply = self.refusals.synced(reply)
        try:
            if not request.group_id:
                raise InvalidGroupIdError()
            group = self.registry.find(request.group_id)
            if group is None:
                raise UnknownMemberIdError()
        except KafkaError as error:
            # Clients do not expect LOAD_IN_PROGRESS from SyncGroup; after loading they have to join again in any case.
            loading = isinstance(error, CoordinatorLoadInProgressError)
            reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
            return
        if group.kind is not None:
            server = self._server(group)
            if server is None or group.is_empty:
                reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                server.sync(request, reply)
            return
        self._members.sync(group, request, reply)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat: NONE or REBALANCE_IN_PROGRESS; raises KafkaError where the member is not of this generation."""
        if not group_id:
            # Offset commits can create a group with the empty id, which has no members.
            raise InvalidGroupIdError()
        group = self.registry.groups.get(group_id)
        if group is None:
            try:
                self.registry.find(group_id)
            except CoordinatorLoadInProgressError:
                # Membership is not known before the load ends, which starts the sessions of all members anew.
                return ErrorCode.NONE
            raise UnknownMemberIdError()
        if group.kind is not None:
            server = self._server(group)
            if server is None:
                raise UnknownMemberIdError()
            with self.refusals.raised():
                return server.heartbeat_classic(group_id, member_id, group_instance_id, generation_id)
        with self.refusals.raised():
            return self._members.heartbeat(group, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """LeaveGroup.  Raises InvalidGroupIdError, UnknownMemberIdError."""
        if not group_id:
            raise InvalidGroupIdError()
        group = self.registry.find(group_id)
        if group is None:
            return [
                LeaveResult(each.member_id, each.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for each in leaving
            ]
        if group.kind is not None:
            server = self._server(group)
            if server is None:
                raise UnknownMemberIdError()
            return self.refusals.leaves(server.leave_classic(group_id, leaving))
        return self.refusals.leaves(self._members.leave(group, leaving))

    # Offsets

    def commit_offsets(
        self, committer: Committer, commits: Sequence[PartitionCommit], api_version: int
    ) -> list[ErrorCode]:
        """Store offsets; one code per commit, in order."""
        with self.refusals.raised():
            return self.refusals.codes(self._commits.commit(committer, commits, api_version))

    def commit_transactional_offsets(
        self,
        committer: Committer,
        commits: Sequence[PartitionCommit],
        producer: TransactionalProducer,
        api_version: int,
    ) -> list[ErrorCode]:
        """Store offsets that count once the producer's transaction is committed; one code per commit, in order."""
        with self.refusals.raised():
            return self.refusals.codes(self._commits.commit_transactional(committer, commits, producer, api_version))

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's state is in.  CoordinatorNotAvailableError while there
        is no such topic."""
        return self.registry.runtime.partition_of(group_id)

    def offsets_of(self, group_id: str, member_id: str | None = None, member_epoch: int = -1) -> OffsetTable | None:
        """The committed offsets of a group, to read; None when there is no such group.  A given member id must be a
        member's."""
        group = self.registry.find(group_id)
        if group is not None and group.kind is not None:
            group.kind.check_fetch(member_id, member_epoch)
        return None if group is None else group.offsets

    def delete_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        """OffsetDelete: one code per partition."""
        return self._commits.delete(self._existing(group_id), partitions)

    def check_partition(self, index: int) -> None:
        """KafkaError while the groups of a partition of `__consumer_offsets` are not served."""
        self.registry.check_partition(index)

    def end_transaction(self, index: int, producer_id: int, committed: bool) -> None:
        """A marker was written to a partition of `__consumer_offsets`: apply or drop its transaction's offsets."""
        self.registry.end_transaction(index, producer_id, committed)

    def expire_offsets(self) -> None:
        """Forget offsets and groups that have outlived `offsets.retention.minutes`, with the loop's other work in
        between when there are many."""
        self._expire_slice(iter(list(self.registry.groups.values())), self._slices.pace())

    def _expire_slice(self, groups: Iterator[Group], pace: Pace) -> None:
        while self._running:
            portion = list(islice(groups, _EXPIRY_PORTION))
            if not portion:
                return
            self._commits.expire(portion)
            if pace.due():
                pace.then(partial(self._expire_slice, groups, pace))
                return

    # Administration

    def is_offline(self, group_id: str) -> bool:
        """Whether the group's state lies on a disk that has failed."""
        return self.registry.is_offline(group_id)

    def _existing(self, group_id: str) -> Group:
        group = self.registry.find(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def check_group(self, group_id: str) -> None:
        """GroupIdNotFoundError, or why it is not known, unless the group exists."""
        self._existing(group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        """One group for DescribeGroups; raises GroupIdNotFoundError."""
        group = self._existing(group_id)
        if group.kind is not None:
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=group.described_members(),
        )

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> Iterable[ListedGroup]:
        """Groups in one of the states and of one of the types, both in small letters; all where a filter is empty."""
        self.registry.check_complete()
        # One by one as they are asked for: there may be 100,000.
        return (
            line
            for line in map(_line, list(self.registry.groups.values()))
            if (not states or line.state.lower() in states) and (not types or line.group_type in types)
        )

    def delete_group(self, group_id: str) -> None:
        """DeleteGroups for one group; NonEmptyGroupError while it has members."""
        self._commits.delete_group(self._existing(group_id))

    # Metrics

    def summaries(self) -> Iterator[GroupSummary]:
        """All groups with their committed offsets."""
        for group in list(self.registry.groups.values()):
            committed = [(topic, partition, offset.offset) for topic, partition, offset in group.offsets]
            count = len(group.members) if group.kind is None else group.kind.member_count
            yield GroupSummary(group.group_id, _line(group).state, count, committed)

    @property
    def rebalance_count(self) -> int:
        """Rebalances since the start."""
        return self.rebalances.rebalance_count

    @property
    def expired_offset_count(self) -> int:
        """Committed offsets that were forgotten for their age, since the start."""
        return self._commits.expired_count


def _line(group: Group) -> ListedGroup:
    kind = group.kind
    if kind is None:
        return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
    return ListedGroup(group.group_id, kind.protocol_type, kind.state_name, kind.group_type)
