"""The requests by which an observer asks for the metadata log (KIP-595, KIP-630, KIP-853, KIP-1166), for each version.

Fetch 13-14    replica_id
      15-16    replica_state instead
      17       replica_directory_id besides
      18       high_watermark besides: the leader answers as soon as its own is higher
FetchSnapshot 0, 1 with replica_directory_id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.schemas import schema, wire
from kbroker.types import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from kbroker.cluster.kraft.quorum_steps import Identity, LogPlace, SnapshotId

METADATA_TOPIC_ID = bytes(15) + b"\1"
MAX_WAIT_MS = 500
FETCH_VERSIONS = 13, 18
SNAPSHOT_VERSIONS = 0, 1
_LAST_BY_REPLICA_ID = schema("FetchRequest").last_version("replica_id")
_FIRST_WITH_DIRECTORY = schema("FetchRequest").first_version("topics.partitions.replica_directory_id")
_FIRST_WITH_HIGH_WATERMARK = schema("FetchRequest").first_version("topics.partitions.high_watermark")
_SNAPSHOT_WITH_DIRECTORY = schema("FetchSnapshotRequest").first_version("topics.partitions.replica_directory_id")


def fetch_request(identity: Identity, place: LogPlace, max_bytes: int, version: int) -> wire.FetchRequest:
    """Asks for what follows the log's end."""
    request = wire.FetchRequest
    partition = request.FetchPartition(
        partition=0,
        current_leader_epoch=place.epoch,
        fetch_offset=place.end_offset,
        last_fetched_epoch=place.last_epoch,
        log_start_offset=-1,
        partition_max_bytes=0,
    )
    if version >= _FIRST_WITH_DIRECTORY:
        partition.replica_directory_id = identity.directory_id
    if version >= _FIRST_WITH_HIGH_WATERMARK:
        partition.high_watermark = place.high_watermark
    made = request(
        cluster_id=identity.cluster_id,
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=0,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    if version <= _LAST_BY_REPLICA_ID:
        made.replica_id = identity.node_id
    else:
        made.replica_state = request.ReplicaState(replica_id=identity.node_id, replica_epoch=-1)
    return made


def snapshot_request(
    identity: Identity, epoch: int, snapshot: SnapshotId, position: int, max_bytes: int, version: int
) -> wire.FetchSnapshotRequest:
    """Asks for the bytes of a snapshot from a position on."""
    request = wire.FetchSnapshotRequest
    partition = request.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=request.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
    )
    if version >= _SNAPSHOT_WITH_DIRECTORY:
        partition.replica_directory_id = identity.directory_id
    return request(
        cluster_id=identity.cluster_id,
        replica_id=identity.node_id,
        max_bytes=max_bytes,
        topics=[request.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
    )
