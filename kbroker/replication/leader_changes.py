"""What a broker tells the controller of its replicas: at a start, and when log directories fail.

- Losing the leader raises its epoch, and so does getting it back (`kbroker.cluster.partitions`).
- A start after an unclean stop begins a new epoch, as Kafka's does: records may be lost, and a client that has read
  them finds the end of the old epoch below its position (KIP-320).  So does a start that finds a log to end before
  what it had, however the broker was stopped.
- No leader begins below the epochs that its log holds, as it would with a backup of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.cluster.partitions import needs_new_epoch
from kbroker.cluster.requests import HeldLog, ReplicaReport
from kbroker.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from kbroker.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")

NO_LOG = HeldLog(NO_LEADER_EPOCH, -1, is_unclean=True)
"""It, or its name, was not on the disk yet when the machine ended, or the disk is another one."""


def report_at_start(
    image: ClusterImage, node_id: int, log_manager: LogManager, *, all_on_one_host: bool = False
) -> ReplicaReport:
    """What the controller has to know of this node's replicas.

    `all_on_one_host`: all replicas of a partition are on one machine, as those of its workers are.  The end of a
    process then loses nothing that was written, and after a power cut the logs' ends show which replica has lost most
    (`held_logs`).

    The directories that work say which partitions are there.  While a directory is offline, a partition that is in none
    of the others is assumed to be in it, and is offline; so it is not created anew, and empty.
    """
    unclean_directories = {directory.path for directory in log_manager.online_directories() if not directory.clean}
    is_one_missing = bool(log_manager.failures.offline)
    offline: set[TopicPartition] = set()
    online: dict[TopicPartition, int] = {}
    unclean: set[TopicPartition] = set()
    for name, partition in _partitions(image, node_id):
        log = log_manager.get_log(name)
        if log is None and is_one_missing:
            offline.add(name)
            continue
        if partition.leader not in (NO_LEADER, node_id):
            continue
        held_epoch = log.latest_epoch if log is not None else NO_LEADER_EPOCH
        was_unclean = log is None or log.parent in unclean_directories or _is_cut(log, log_manager)
        if was_unclean or needs_new_epoch(partition, node_id, held_epoch):
            online[name] = held_epoch
            if was_unclean and not all_on_one_host:
                unclean.add(name)
    if offline:
        logger.error(
            "%d partitions are not in the log directories that work, so they are offline: %s are missing",
            len(offline),
            ", ".join(log_manager.failures.offline),
        )
    assert not offline & online.keys(), "partitions that are offline, and online"
    assert unclean <= online.keys(), "partitions that may have lost records, and keep their epoch"
    return ReplicaReport(frozenset(offline), online, frozenset(unclean))


async def held_logs(
    image: ClusterImage, node_id: int, log_manager: LogManager, pace: Pace
) -> dict[TopicPartition, HeldLog]:
    """The latest epochs and end offsets of this node's logs, for partitions that another replica could lead as well;
    which of them were found to lack their end, and which are not there."""
    unclean_directories = {directory.path for directory in log_manager.online_directories() if not directory.clean}
    found: dict[TopicPartition, HeldLog] = {}
    for name, partition in _partitions(image, node_id):
        await pace
        able = {*partition.isr, *partition.elr}
        log = log_manager.get_log(name)
        if log is None:
            if not log_manager.failures.offline:
                found[name] = NO_LOG
        elif node_id in able and len(able) > 1:
            is_cut = _is_cut(log, log_manager)
            found[name] = HeldLog(log.latest_epoch, log.log_end_offset, log.parent in unclean_directories, is_cut)
    return found


def _is_cut(log: UnifiedLog, log_manager: LogManager) -> bool:
    return log_manager.environment.damages.is_cut(log.topic_partition, log.log_end_offset)


def _partitions(image: ClusterImage, node_id: int) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """The partitions with a replica on a node."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if node_id in partition.replicas:
                yield TopicPartition(topic.name, partition.partition), partition
