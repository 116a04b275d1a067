"""Committing, deleting and expiring offsets.

Offsets are written before they count: a commit that cannot be stored changes nothing.  An offset's record key never
changes, so a group's offsets can be rebuilt from the log at any moment.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from kbroker.clock import Clock
from kbroker.coordinator.classic import expiration, state_records
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_registry import GroupRegistry
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.messages import UNKNOWN_MEMBER_ID, PartitionCommit, new_tuple
from kbroker.coordinator.classic.offsets import CommittedOffset
from kbroker.coordinator.classic.rebalance import Rebalances
from kbroker.coordinator.modern.group import CommitCheck
from kbroker.coordinator.runtime.plan import KeyValue, Plan, TransactionalProducer, write_error
from kbroker.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kbroker.outage import Outages

logger = logging.getLogger("kbroker.groups")

# From this version of OffsetCommit on, a client knows the error for a group that does not exist.
_KNOWS_GROUP_ID_NOT_FOUND = 9
_MOST_ENCODERS = 1024
"""Of so many groups what their commits have in common is kept."""
# To look a member of an enumeration up takes longer than a commit has.
_NONE, _EMPTY = ErrorCode.NONE, GroupState.EMPTY


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits; generation -1 and no member for consumers without group management and for tools."""

    group_id: str
    generation_id: int = -1
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None


class OffsetCommits:
    """The offsets of all groups."""

    __slots__ = (
        "_clock",
        "_encoders",
        "_max_metadata_bytes",
        "_outages",
        "_rebalances",
        "_registry",
        "_retention_ms",
        "expired_count",
    )

    def __init__(
        self,
        registry: GroupRegistry,
        rebalances: Rebalances,
        clock: Clock,
        max_metadata_bytes: int,
        retention_ms: int,
    ) -> None:
        self._registry = registry
        self._rebalances = rebalances
        self._clock = clock
        self._outages = Outages(logger, now=clock.monotonic)
        self._max_metadata_bytes = max_metadata_bytes
        self._retention_ms = retention_ms
        self.expired_count = 0
        self._encoders: dict[str, state_records.OffsetEncoder] = {}

    # Committing

    def commit(self, committer: Committer, commits: Sequence[PartitionCommit], api_version: int) -> list[ErrorCode]:
        """Store offsets; one code per commit, in order.  Raises what concerns all of them."""
        group, check = self._admit(committer, api_version)
        codes, accepted, records = self._accepted(group, check, commits)
        try:
            self._registry.append(group, records)
        except KafkaError as error:
            raise self._not_stored(group, len(records), error) from error
        group.offsets.put_all(accepted)
        if not accepted:
            self._registry.discard_unused(group)
        return codes

    def commit_transactional(
        self,
        committer: Committer,
        commits: Sequence[PartitionCommit],
        producer: TransactionalProducer,
        api_version: int,
    ) -> list[ErrorCode]:
        """Store offsets of an open transaction; the same, but for when they count."""
        group, check = self._admit_transactional(committer, api_version)
        codes, accepted, records = self._accepted(group, check, commits)
        try:
            self._registry.runtime.write(group.partition_index, lambda _state, _now_ms: Plan(None, records, producer))
        except KafkaError as error:
            raise self._not_stored(group, len(records), error) from error
        if not accepted:
            self._registry.discard_unused(group)
        return codes

    def _not_stored(self, group: Group, count: int, error: KafkaError) -> KafkaError:
        self._registry.discard_unused(group)
        logger.warning("group %s: %d offsets could not be stored: %s", group, count, error)
        return KafkaError.of(write_error(error, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))

    def _accepted(
        self, group: Group, check: CommitCheck | None, commits: Sequence[PartitionCommit]
    ) -> tuple[list[ErrorCode], list[tuple[str, int, CommittedOffset]], list[KeyValue]]:
        """One code per commit, and those that may be stored, as values and as records."""
        now_ms = self._clock.now_ms()
        codes: list[ErrorCode] = []
        accepted: list[tuple[str, int, CommittedOffset]] = []
        records: list[KeyValue] = []
        encode, most = self._encoder(group.group_id).record, self._max_metadata_bytes
        for topic, partition, offset, epoch, metadata, commit_timestamp, expire_timestamp, topic_id in commits:
            if len(metadata) > most:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if check is not None:
                try:
                    check(topic, topic_id, partition)
                except KafkaError as error:
                    codes.append(error.code)
                    continue
            timestamp = now_ms if commit_timestamp < 0 else commit_timestamp
            committed = new_tuple(CommittedOffset, (offset, epoch, metadata, timestamp, expire_timestamp, topic_id))
            accepted.append((topic, partition, committed))
            records.append(encode(topic, partition, committed))
            codes.append(_NONE)
        return codes, accepted, records

    def _encoder(self, group_id: str) -> state_records.OffsetEncoder:
        """The encoder of a group, which knows what the group's commits have in common."""
        found = self._encoders.get(group_id)
        if found is None:
            if len(self._encoders) >= _MOST_ENCODERS:
                self._encoders.clear()
            found = self._encoders[group_id] = state_records.OffsetEncoder(group_id)
        return found

    def _admit_transactional(self, committer: Committer, api_version: int) -> tuple[Group, CommitCheck | None]:
        """The same for a commit in a transaction; a producer that names no member (before KIP-447) is let in."""
        group = self._registry.groups.get(committer.group_id) or self._registry.find(committer.group_id)
        is_member = committer.generation_id >= 0 or bool(committer.member_id) or committer.group_instance_id is not None
        if group is None:
            if committer.generation_id < 0:
                return self._registry.create(committer.group_id), None
            raise IllegalGenerationError()
        if not is_member:
            return group, None
        if group.kind is not None:
            try:
                check = group.kind.check_commit(
                    committer.member_id,
                    committer.group_instance_id,
                    committer.generation_id,
                    api_version,
                    is_transactional=True,
                )
            except KafkaError as error:
                raise _as_generation(error) from error
            return group, None if check is None else partial(_check_generation, check)
        if committer.generation_id < 0 and group.state is _EMPTY:
            return group, None
        group.check_member(committer.member_id, committer.group_instance_id)
        if committer.generation_id != group.generation_id:
            raise IllegalGenerationError()
        return group, None

    def _admit(self, committer: Committer, api_version: int) -> tuple[Group, CommitCheck | None]:
        """The group, if `committer` may commit to it now, and the check of each partition.  A commit restarts the
        session."""
        group = self._registry.groups.get(committer.group_id) or self._registry.find(committer.group_id)
        if group is None:
            if committer.generation_id < 0:
                return self._registry.create(committer.group_id), None
            if api_version >= _KNOWS_GROUP_ID_NOT_FOUND:
                raise GroupIdNotFoundError(f"Group {committer.group_id} not found.")
            raise IllegalGenerationError()
        if group.kind is not None:
            check = group.kind.check_commit(
                committer.member_id, committer.group_instance_id, committer.generation_id, api_version
            )
            return group, check
        if committer.generation_id < 0 and group.state is _EMPTY:
            return group, None
        if committer.generation_id >= 0 or committer.member_id or committer.group_instance_id is not None:
            member = group.check_member(committer.member_id, committer.group_instance_id)
            if committer.generation_id != group.generation_id:
                raise IllegalGenerationError()
            if group.state is GroupState.COMPLETING_REBALANCE:
                # It knows the new generation, so it is a valid member whose assignment is still being computed.
                raise RebalanceInProgressError()
            self._rebalances.watch(group, member)
        elif group.state is not GroupState.EMPTY:
            raise UnknownMemberIdError()
        return group, None

    # Deleting

    def delete(self, group: Group, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        """Forget offsets that no member reads.  Raises what concerns all of them."""
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            raise NonEmptyGroupError()
        results: dict[tuple[str, int], ErrorCode] = {}
        due: list[tuple[str, int]] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                results[topic, partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                continue
            results[topic, partition] = ErrorCode.NONE
            if group.offsets.get(topic, partition) is not None or group.offsets.has_pending(topic, partition):
                due.append((topic, partition))
        self._registry.append(group, self._tombstones(group, due))
        for topic, partition in due:
            group.offsets.remove(topic, partition)
        assert group.offsets.places().keys().isdisjoint(due), f"group {group}: offsets that were deleted are left"
        return results

    @staticmethod
    def _tombstones(group: Group, partitions: Iterable[tuple[str, int]]) -> list[KeyValue]:
        return [(state_records.offset_key(group.group_id, topic, partition), None) for topic, partition in partitions]

    def delete_group(self, group: Group) -> None:
        """Forget an empty group with all its offsets.  Raises NonEmptyGroupError or what the write fails with."""
        if not group.is_empty:
            raise NonEmptyGroupError()
        self._registry.append(group, self._registry.tombstones(group))
        assert not group.members, f"group {group} is deleted with its members"
        self._registry.discard(group)

    def forget_topics(self, topics: frozenset[str], groups: Iterable[Group]) -> None:
        """Topics were deleted: remove their offsets, pending ones of open transactions included, so that a later topic
        of the same name is not read from them."""
        for group in groups:
            gone = group.offsets.places_of(topics)
            if gone:
                self._forget(group, gone, "their topics were deleted")

    def _forget(self, group: Group, partitions: Sequence[tuple[str, int]], reason: str) -> bool:
        try:
            self._registry.append(group, self._tombstones(group, partitions))
        except KafkaError as error:
            text = "group %s: %d offsets could not be removed: %s"
            self._outages.failed(group.group_id, text, group, len(partitions), error)
            return False
        self._outages.over(group.group_id, "group %s: offsets are removed again", group)
        for topic, partition in partitions:
            group.offsets.remove(topic, partition)
        assert group.offsets.places().keys().isdisjoint(partitions), f"group {group}: offsets that are gone are left"
        logger.info("group %s: removed %d offsets (%s)", group, len(partitions), reason)
        return True

    # Expiring

    def expire(self, groups: Iterable[Group]) -> None:
        """Forget what has been unused for the retention time; delete groups of which nothing is left."""
        now_ms = self._clock.now_ms()
        deleted: dict[int, list[Group]] = defaultdict(list)
        for group in groups:
            if self._registry.groups.get(group.group_id) is not group:
                continue
            outcome = expiration.expired(group, now_ms, self._retention_ms)
            assert not outcome.delete_group or group.is_empty, f"group {group} expires with its members"
            if outcome.delete_group:
                deleted[group.partition_index].append(group)
            elif outcome.offsets and self._forget(group, outcome.offsets, "expired"):
                self.expired_count += len(outcome.offsets)
        for partition_index, groups in deleted.items():
            self._delete_expired(partition_index, groups)

    def _delete_expired(self, partition_index: int, groups: Sequence[Group]) -> None:
        records = [record for group in groups for record in self._registry.tombstones(group)]
        try:
            self._registry.append_to(partition_index, records)
        except KafkaError as error:
            text = "%d expired groups could not be removed: %s"
            self._outages.failed(partition_index, text, len(groups), error)
            return
        self._outages.over(partition_index, "expired groups are removed again")
        for group in groups:
            logger.info("group %s has expired with %d offsets", group, len(group.offsets))
            assert group.is_empty and not group.offsets.pending, f"group {group} expires while it is used"
            self.expired_count += len(group.offsets)
            self._registry.discard(group)


def _check_generation(check: CommitCheck, topic: str, topic_id: bytes, partition: int) -> None:
    try:
        check(topic, topic_id, partition)
    except KafkaError as error:
        raise _as_generation(error) from error


def _as_generation(error: KafkaError) -> KafkaError:
    """The error in terms of TxnOffsetCommit, whose clients do not know STALE_MEMBER_EPOCH."""
    return IllegalGenerationError() if error.code is ErrorCode.STALE_MEMBER_EPOCH else error
