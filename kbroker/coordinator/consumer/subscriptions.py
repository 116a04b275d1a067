"""What a group subscribes to, and when a change of it raises the group's epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.draft import Draft, HeartbeatContext
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.coordinator.consumer.regexes import compiled
from kbroker.coordinator.modern.topic_hash import metadata_hash

# Regular expressions of a group are resolved together, at most this often.
REGEX_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """What became of a member's regular expression."""

    NONE = 0
    CHANGED = 1
    # Its topics are known already, or are none, so there is nothing to wait for.
    CHANGED_AND_KNOWN = 2


def write_member(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, draft: Draft) -> bool:
    """Store what a member says of itself, if that is new.  Whether the topics it names have changed."""
    if after == before:
        return False
    draft.records.append(records.member_metadata(group.group_id, after))
    return after.topic_names != before.topic_names


def change_regex(
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, context: HeartbeatContext, draft: Draft
) -> RegexChange:
    """Drop a regular expression that no member uses any more.  Request that the group's expressions be resolved when
    one of them is new, when topics were created, or when they were last resolved too long ago."""
    old, new = before.topic_regex or "", after.topic_regex or ""
    change = RegexChange.NONE
    is_new = False
    if before.topic_regex != after.topic_regex:
        change = RegexChange.CHANGED
        if old and group.regexes[old] == 1:
            draft.records.append(records.regex_tombstone(group.group_id, old))
        if new and not group.regexes[new]:
            compiled(new)
            is_new = True
        elif (new and new in group.resolved) or (not new and old):
            change = RegexChange.CHANGED_AND_KNOWN
    wanted = regexes_after(group, before, after)
    if refresh_due(group, wanted, context, has_new=is_new):
        draft.resolve = frozenset(wanted)
    return change


def refresh_due(
    group: ConsumerGroup, wanted: Counter[str], context: HeartbeatContext, *, has_new: bool = False
) -> bool:
    """Whether the regular expressions of a group are to be resolved now."""
    if not wanted or group.resolving:
        return False
    last = next(iter(group.resolved.values()), None)
    if last is None:
        return True
    age_ms = context.now_ms - last.timestamp
    return age_ms > REGEX_INTERVAL_MS and (
        has_new
        or len(wanted) != len(group.resolved)
        or last.version < context.topics_version
        or age_ms > context.settings.regex_refresh_interval_ms
    )


def regexes_after(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> Counter[str]:
    """How many members use each regular expression, once a member has changed."""
    if before.topic_regex == after.topic_regex:
        return group.regexes
    counts = group.regexes.copy()
    for regex, step in ((before.topic_regex, -1), (after.topic_regex, 1)):
        if regex:
            counts[regex] += step
    return +counts


def bump_epoch(
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    context: HeartbeatContext,
    draft: Draft,
    *,
    changed: bool,
) -> tuple[int, bool]:
    """The group's epoch and whether it is homogeneous, once a member has changed: a new epoch if the subscription has
    `changed` or the topics have."""
    names = group.names
    if before.topic_names != after.topic_names:
        names = names.copy()
        names.subtract(before.topic_names)
        names.update(after.topic_names)
        names = +names
    regex_names = group.regex_names
    old = before.topic_regex
    if old and old != after.topic_regex and group.regexes[old] == 1 and old in group.resolved:
        regex_names = regex_names.copy()
        regex_names.subtract(group.resolved[old].topics)
        regex_names = +regex_names
    value = metadata_hash(context.cache, names.keys() | regex_names.keys())
    is_new = after.member_id not in group.members and group.static_member(after.instance_id) is None
    homogeneous = is_homogeneous(names, regex_names, regexes_after(group, before, after), len(group.members) + is_new)
    epoch = group.epoch
    if changed or value != group.metadata_hash:
        epoch += 1
        draft.records.append(records.group_epoch(group.group_id, epoch, value))
        draft.rebalanced = "the subscription of a member changed" if changed else "its topics changed"
    draft.image_version = context.cache.image.version
    if group.has_partition_metadata:
        draft.records.append(records.partitions_tombstone(group.group_id))
    return epoch, homogeneous


def group_is_homogeneous(group: ConsumerGroup) -> bool:
    """Whether all members of a group subscribe to the same topics."""
    return is_homogeneous(group.names, group.regex_names, group.regexes, len(group.members))


def is_homogeneous(names: Counter[str], regex_names: Counter[str], regexes: Counter[str], member_count: int) -> bool:
    """Whether all members subscribe to the same topics: the same names, or one regular expression and nothing else."""
    if not regexes:
        return all(names[name] == member_count for name in names.keys() | regex_names.keys())
    if next(iter(regexes.values())) != member_count:
        return False
    return not names and all(count == 1 for count in regex_names.values())


def epoch_without(
    group: ConsumerGroup, leaving: Iterable[ConsumerMember], context: HeartbeatContext, draft: Draft
) -> None:
    """The next epoch of a group that members leave; regular expressions that only they used are dropped."""
    gone = list(leaving)
    names, regex_names = group.names.copy(), group.regex_names.copy()
    for member in gone:
        names.subtract(member.topic_names)
    for regex, count in Counter(member.topic_regex for member in gone if member.topic_regex).items():
        if group.regexes[regex] == count:
            draft.records.append(records.regex_tombstone(group.group_id, regex))
            if regex in group.resolved:
                regex_names.subtract(group.resolved[regex].topics)
    assert min(names.values(), default=0) >= 0, f"{group.group_id}: more members leave a topic than subscribe to it"
    assert min(regex_names.values(), default=0) >= 0, (group.group_id, regex_names)
    value = metadata_hash(context.cache, (+names).keys() | (+regex_names).keys())
    draft.records.append(records.group_epoch(group.group_id, group.epoch + 1, value))
    draft.rebalanced = "a member is gone"


def apply_resolved(
    group: ConsumerGroup, found: Mapping[str, ResolvedRegex], context: HeartbeatContext, draft: Draft
) -> None:
    """Store what regular expressions match; a new epoch if that, or the topics, have changed."""
    changed = False
    regex_names = group.regex_names.copy()
    for regex, resolved in found.items():
        if not group.regexes[regex]:
            continue
        old = group.resolved.get(regex)
        old_topics = old.topics if old is not None else frozenset()
        if old_topics != resolved.topics:
            changed = True
            regex_names.subtract(old_topics)
            regex_names.update(resolved.topics)
        draft.records.append(records.regex(group.group_id, regex, resolved))
    assert min(regex_names.values(), default=0) >= 0, (group.group_id, regex_names)
    value = metadata_hash(context.cache, group.names.keys() | (+regex_names).keys())
    if changed or value != group.metadata_hash:
        epoch = group.epoch + 1
        draft.records.append(records.group_epoch(group.group_id, epoch, value))
        draft.rebalanced = "regular expressions match other topics"
    draft.image_version = context.cache.image.version
