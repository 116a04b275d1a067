"""DescribeLogDirs (API 35): v0-v5, and AlterReplicaLogDirs (API 34): v0-v2.

DescribeLogDirs lists each log directory with its partitions and their sizes.  Null topics mean all partitions; named
partitions that do not exist are omitted without an error.

- A directory that is offline or cannot be read has KAFKA_STORAGE_ERROR and no partitions.
- A partition that moves to another directory (KIP-113) is listed in both.  The target has `is_future_key`, the bytes
  copied so far, and how many offsets the copy is behind.
- v4+ says how large the directory's file system is and how much of it this process may use (KIP-827).
- v5+ says whether the directory is cordoned (KIP-1066).

AlterReplicaLogDirs moves partitions to a directory, named as in `log.dirs`.  The answer says whether the move was
begun; DescribeLogDirs shows its progress.

- A partition named for several directories goes to the last of them.  If it is there already, a move under way is
  cancelled.
- A partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION, and it is made in that directory if it comes to be.
- A directory that is not one of `log.dirs`: LOG_DIR_NOT_FOUND; offline: KAFKA_STORAGE_ERROR; cordoned:
  INVALID_REPLICA_ASSIGNMENT, also for a partition that is there already.
- A name too long for `topic-partition.<id>-future`: INVALID_TOPIC_EXCEPTION.

v1 only changed throttling; v2 is the first flexible version of AlterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.alter_log_dirs import DirectoryMoves
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.handlers")

UNKNOWN_SIZE = -1
UNKNOWN_LAG = -1


async def handle_describe_log_dirs(ctx: RequestContext, request: wire.DescribeLogDirsRequest) -> Struct:
    """DescribeLogDirs v0-v5; see the module's docstring."""
    response = wire.DescribeLogDirsResponse
    if not may_cluster(ctx, Operation.DESCRIBE):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    log_manager: LogManager = ctx.services.log_manager
    pace = ctx.services.slices.pace()
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            await pace
            for partition in topic.partitions:
                await pace
                wanted.add((topic.topic, partition))
    by_directory: dict[str, dict[str, list[wire.DescribeLogDirsResponse.DescribeLogDirsPartition]]] = {
        each.path: {} for each in log_manager.directories
    }
    row = response.DescribeLogDirsPartition
    for topic_partition, log in list(log_manager.logs.items()):
        await pace
        if (wanted is None or topic_partition in wanted) and log_manager.logs.get(topic_partition) is log:
            found = row(
                partition_index=topic_partition.partition,
                partition_size=log.size_bytes,
                offset_lag=_lag(ctx, topic_partition),
            )
            by_directory[log.parent].setdefault(topic_partition.topic, []).append(found)
    for topic_partition, future in log_manager.plans.futures.items():
        if wanted is None or topic_partition in wanted:
            found = row(
                partition_index=topic_partition.partition,
                partition_size=future.copied_bytes,
                offset_lag=future.offset_lag,
                is_future_key=True,
            )
            by_directory[future.parent].setdefault(topic_partition.topic, []).append(found)
    results = [_describe(log_manager, path, topics) for path, topics in by_directory.items()]
    return response(results=results)


def _lag(ctx: RequestContext, topic_partition: TopicPartition) -> int:
    """Of a follower, what its leader has committed and it has not; in Kafka that is 0 while it copies, too."""
    partition = ctx.services.replica_manager.hosted(topic_partition)
    lag = 0 if partition is None else partition.behind
    return UNKNOWN_LAG if lag is None else lag


def _describe(
    log_manager: LogManager, path: str, topics: dict[str, list[wire.DescribeLogDirsResponse.DescribeLogDirsPartition]]
) -> wire.DescribeLogDirsResponse.DescribeLogDirsResult:
    response = wire.DescribeLogDirsResponse
    result = response.DescribeLogDirsResult(
        log_dir=path,
        total_bytes=UNKNOWN_SIZE,
        usable_bytes=UNKNOWN_SIZE,
        is_cordoned=path in log_manager.plans.cordoned,
    )
    if log_manager.failures.is_offline(path):
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    try:
        result.total_bytes, result.usable_bytes = log_manager.environment.files.space(path)
    except OSError as error:
        logger.error("cannot describe log directory %s: %s", path, error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.topics = [response.DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    return result


async def handle_alter_replica_log_dirs(ctx: RequestContext, request: wire.AlterReplicaLogDirsRequest) -> Struct:
    """AlterReplicaLogDirs v0-v2; see the module's docstring."""
    response = wire.AlterReplicaLogDirsResponse
    pace = ctx.services.slices.pace()
    is_allowed = may_cluster(ctx, Operation.ALTER)
    moves: DirectoryMoves = ctx.services.directory_moves
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        await pace
        for topic in directory.topics:
            await pace
            for partition in topic.partitions:
                await pace
                wanted[TopicPartition(topic.name, partition)] = directory.path
    topics: dict[str, list[wire.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
    for topic_partition, path in wanted.items():
        await pace
        row = response.AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition)
        topics.setdefault(topic_partition.topic, []).append(row)
        if not is_allowed:
            row.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            continue
        try:
            moves.alter(topic_partition, path)
        except KafkaError as error:
            logger.warning("not moving %s to %s: %s", topic_partition, path, error)
            row.error_code = error.code
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()
        ]
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, handle_alter_replica_log_dirs),
    Handler(ApiKey.DESCRIBE_LOG_DIRS, 0, 5, handle_describe_log_dirs),
)
