"""The states of a partition and how they change: pure functions of its image and of what is known of the brokers.

Kafka's rules (PartitionChangeBuilder, KIP-966).  A partition is led by a replica in its ISR, or has no leader.
Replicas that leave an ISR below `min.insync.replicas` stay eligible leader replicas (ELR), as they hold all that was
committed.
When a replica is due to lead:

    the leader stays          while it is in the ISR and alive
    clean                     the first replica in the ISR that is alive (PREFERRED: the first replica first); where
                              the ISR is empty, in the ELR
    last known leader         where ISR and ELR are empty: the last leader, which may have lost records
    unclean                   any replica that is alive, where the election or the topic allows it; never PREFERRED

`leader_epoch` grows when the leader changes or a new epoch is asked for, `partition_epoch` with every change.  A new
leader epoch is above every epoch in the leader's log, as clients drop metadata whose epoch is older than the one they
know.

There are two deviations, each of which keeps records that Kafka would lose.  An ELR has replicas alone: one that has
left may come back with an empty log.  An ELR is empty as soon as the ISR is large enough, also where the election that
made it so took its only member from the ELR: the others lack what is acknowledged from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from kbroker.cluster.requests import ElectionType, IsrChange
from kbroker.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
)
from kbroker.metadata.image import NO_LEADER, RECOVERED, RECOVERING, PartitionImage
from kbroker.types import NO_LEADER_EPOCH


class Election(Enum):
    """Who may lead."""

    ONLINE = auto()
    """The leader if it can go on, else the first replica that has all that was committed; any that is alive where the
    topic allows it."""
    CLEAN = auto()
    """As ONLINE, but never a replica that may lack records."""
    PREFERRED = auto()
    """The first replica if it has all that was committed, else as CLEAN."""
    UNCLEAN = auto()
    """As ONLINE, else any replica that is alive."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What a decision depends on besides the partition: the brokers that are alive, by broker epoch, and settings."""

    alive: Collection[int]
    min_insync_replicas: int = 1
    """Not more than the topic's first partition has replicas."""
    has_elr: bool = True
    is_unclean_allowed: bool = False
    has_recovery: bool = False
    """Whether a leader of an unclean election is noted as recovering until its next ISR (KIP-704)."""
    raises_epoch_on_shrink: bool = False
    """Whether a smaller ISR begins a new leader epoch."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The replicas that a partition is to have."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def change(
    partition: PartitionImage,
    context: PartitionContext,
    *,
    election: Election = Election.ONLINE,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    unclean: Collection[int] = (),
    least_leader_epoch: int = NO_LEADER_EPOCH,
    is_recovered: bool = False,
) -> PartitionImage:
    """The partition after a change; the same object where nothing changes.

    `unclean`: replicas that may have lost records.  `is_recovered`: the leader has done with what an unclean election
    left to it.  `least_leader_epoch`: where given, the leader epoch is raised in
    any case, to this value or more.
    """
    wanted_isr = tuple(each for each in (partition.isr if isr is None else isr) if each not in unclean)
    if not wanted_isr and not context.has_elr:
        # Without ELR the last of the ISR stay in it, so that one of them leads again.
        wanted_isr = partition.isr
    target = _complete(
        _Target(
            partition.replicas if replicas is None else tuple(replicas),
            wanted_isr,
            partition.adding_replicas if adding is None else tuple(adding),
            partition.removing_replicas if removing is None else tuple(removing),
        )
    )
    elr = _eligible(partition, context, target, unclean)
    last_known = _last_known(partition, target)
    chosen = _elect(partition, context, target, election, elr, last_known)
    leader = chosen.leader
    new_isr = target.isr if leader == NO_LEADER or leader in target.isr else (leader,)
    if chosen.is_unclean or not context.has_elr or len(new_isr) >= context.min_insync_replicas:
        elr = ()
    leader_epoch = partition.leader_epoch
    is_new = leader != partition.leader or not set(partition.replicas) <= set(target.replicas)
    if context.raises_epoch_on_shrink and not set(partition.isr) <= set(new_isr):
        is_new = True
    recovery = partition.leader_recovery_state
    if context.has_recovery:
        recovery = RECOVERING if chosen.is_unclean else RECOVERED if is_recovered else recovery
    if least_leader_epoch > NO_LEADER_EPOCH or is_new:
        leader_epoch = max(partition.leader_epoch + 1, least_leader_epoch)
    kept = tuple(each for each in elr if each not in new_isr)
    noted = _noted(partition, context, leader, last_known)
    return _numbered(
        partition,
        leader,
        leader_epoch,
        _Target(target.replicas, new_isr, target.adding, target.removing),
        kept,
        noted,
        recovery,
    )


def _numbered(
    partition: PartitionImage,
    leader: int,
    leader_epoch: int,
    target: _Target,
    elr: tuple[int, ...],
    last_known_elr: tuple[int, ...],
    recovery: int,
) -> PartitionImage:
    """The partition as it becomes, in the next epoch; the same object where nothing changes."""

    def made(partition_epoch: int) -> PartitionImage:
        # Thousands change at once: `replace` would take most of the time.
        return PartitionImage(
            partition.partition,
            leader,
            leader_epoch,
            target.replicas,
            target.isr,
            partition_epoch,
            partition.offline_replicas,
            target.adding,
            target.removing,
            elr,
            last_known_elr,
            partition.directories,
            recovery,
        )

    return partition if made(partition.partition_epoch) == partition else made(partition.partition_epoch + 1)


def is_alive(partition: PartitionImage, context: PartitionContext, node_id: int) -> bool:
    """Whether a replica could lead: its broker is alive, and so is its log directory."""
    return node_id in context.alive and node_id not in partition.offline_replicas


def _complete(target: _Target) -> _Target:
    """The replicas when a reassignment that is at its end is done (PartitionReassignmentReplicas).

    It is at its end when the ISR has all that are added, and still one when those removed are gone.  Where fewer are
    added than removed, the ISR has to have all that stay as well: else a partition would give up copies of committed
    records, and those that stay would lack them.
    """
    if not target.adding and not target.removing:
        return target
    isr = tuple(each for each in target.isr if each not in target.removing)
    replicas = tuple(each for each in target.replicas if each not in target.removing)
    if not isr or not set(target.adding) <= set(isr):
        return target
    if len(target.adding) < len(target.removing) and not set(replicas) <= set(isr):
        return target
    return _Target(replicas, isr, (), ())


def _eligible(
    partition: PartitionImage, context: PartitionContext, target: _Target, unclean: Collection[int]
) -> tuple[int, ...]:
    if not context.has_elr:
        # Members from the time when there were ELRs may still lead where the ISR is empty.
        return tuple(each for each in partition.elr if each not in unclean)
    if len(target.isr) >= context.min_insync_replicas:
        return ()
    candidates = sorted({*partition.elr, *partition.isr})
    return tuple(
        each for each in candidates if each in target.replicas and each not in target.isr and each not in unclean
    )


def _last_known(partition: PartitionImage, target: _Target) -> tuple[int, ...]:
    if partition.leader != NO_LEADER:
        return (partition.leader,)
    # Where there is but one replica, it led last.
    return partition.last_known_elr or (target.replicas if len(target.replicas) == 1 else ())


def _noted(
    partition: PartitionImage, context: PartitionContext, leader: int, last_known: tuple[int, ...]
) -> tuple[int, ...]:
    """Whom the partition knows for its last leader from now on."""
    if not context.has_elr:
        return partition.last_known_elr
    return last_known if leader == NO_LEADER else ()


class _Chosen(NamedTuple):
    """Who is to lead."""

    leader: int
    is_unclean: bool = False


def _elect(
    partition: PartitionImage,
    context: PartitionContext,
    target: _Target,
    election: Election,
    elr: Sequence[int],
    last_known: Sequence[int],
) -> _Chosen:
    electable = [each for each in target.replicas if is_alive(partition, context, each)]
    clean = [each for each in electable if each in (target.isr or elr)]
    if election is Election.PREFERRED and target.replicas[0] in clean:
        return _Chosen(target.replicas[0])
    if partition.leader in clean:
        return _Chosen(partition.leader)
    if clean:
        return _Chosen(clean[0])
    # Without ELR the ISR says who led last; what was noted in the time of ELRs counts no more.
    is_noted = len(last_known) == 1 and (context.has_elr or len(target.replicas) == 1)
    if not target.isr and not elr and is_noted and last_known[0] in electable:
        return _Chosen(last_known[0], is_unclean=True)
    may_be_unclean = election is Election.UNCLEAN or (election is Election.ONLINE and context.is_unclean_allowed)
    if electable and may_be_unclean:
        return _Chosen(electable[0], is_unclean=True)
    return _Chosen(NO_LEADER)


# What brokers report


def replica_failed(partition: PartitionImage, node_id: int, context: PartitionContext) -> PartitionImage:
    """A partition whose replica on a node has lost its log directory; the same object where that is known."""
    return change(unserved(partition, node_id), context, isr=[each for each in partition.isr if each != node_id])


def unserved(partition: PartitionImage, node_id: int) -> PartitionImage:
    """A partition whose replica on a node has failed, with the leader and the epochs that it has."""
    if node_id in partition.offline_replicas:
        return partition
    return replace(partition, offline_replicas=(*partition.offline_replicas, node_id))


def replica_returned(
    partition: PartitionImage, node_id: int, held_epoch: int, is_unclean: bool, context: PartitionContext
) -> PartitionImage:
    """A partition whose replica on a node has a log again, or one that may have lost records.

    A leader begins a new epoch, above those that its log holds (`held_epoch`).
    """
    offline = tuple(each for each in partition.offline_replicas if each != node_id)
    back = partition if offline == partition.offline_replicas else replace(partition, offline_replicas=offline)
    unclean = (node_id,) if is_unclean else ()
    changed = change(back, context, unclean=unclean)
    if changed.leader != node_id:
        return changed
    return change(back, context, unclean=unclean, least_leader_epoch=held_epoch + 1)


def needs_new_epoch(partition: PartitionImage, node_id: int, held_epoch: int) -> bool:
    """Whether a replica cannot lead in the epoch that is stored."""
    return partition.leader in (NO_LEADER, node_id) and (
        partition.leader == NO_LEADER or held_epoch > partition.leader_epoch
    )


# What leaders and administrators ask for


def take_isr(
    partition: PartitionImage,
    node_id: int,
    request: IsrChange,
    context: PartitionContext,
    broker_epochs: dict[int, int],
) -> PartitionImage:
    """The partition with the ISR that its leader, `node_id`, proposes; else Kafka's error (AlterPartition).

    Raises FencedLeaderEpochError, IneligibleReplicaError, InvalidRequestError, InvalidUpdateVersionError,
    NotControllerError."""
    if request.leader_epoch > partition.leader_epoch or request.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this controller, which then is none any more.
        raise NotControllerError()
    if request.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError()
    if node_id != partition.leader:
        raise InvalidRequestError()
    if request.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersionError()
    isr = [member for member, _ in request.isr]
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        raise InvalidRequestError()
    for member, epoch in request.isr:
        is_stale = epoch != -1 and epoch != broker_epochs.get(member, epoch)
        if is_stale or not is_alive(partition, context, member):
            raise IneligibleReplicaError()
    return change(partition, context, isr=isr, is_recovered=True)


def elect(partition: PartitionImage, election: ElectionType, context: PartitionContext) -> PartitionImage:
    """The partition after an election that an administrator asks for; else Kafka's error (ElectLeaders).

    Raises ElectionNotNeededError, EligibleLeadersNotAvailableError, PreferredLeaderNotAvailableError."""
    if election is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise ElectionNotNeededError("Leader election not needed for topic partition.")
        elected = change(partition, context, election=Election.PREFERRED)
        if elected is partition:
            raise PreferredLeaderNotAvailableError()
        return elected
    if partition.leader != NO_LEADER:
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    elected = change(partition, context, election=Election.UNCLEAN)
    if elected.leader == NO_LEADER:
        raise EligibleLeadersNotAvailableError()
    return elected


def without_broker(
    partitions: Iterable[PartitionImage], node_id: int, context: PartitionContext
) -> list[PartitionImage]:
    """Partitions when a broker is gone: it leads none and is in no ISR; only those that change."""
    changed = []
    for partition in partitions:
        if partition.leader != node_id and node_id not in partition.isr:
            continue
        isr = [each for each in partition.isr if each != node_id]
        new = change(partition, context, isr=isr)
        if new is not partition:
            changed.append(new)
    return changed
