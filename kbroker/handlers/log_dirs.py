"""DescribeLogDirs (API 35): v0-v5.

What lies where: each log directory with its partitions and their sizes.  Null topics mean all partitions; otherwise
those named that exist, the others being left out without a word.

- A directory that is offline or cannot be read has KAFKA_STORAGE_ERROR and no partitions.
- `offset_lag` and `is_future_key` speak of replicas that move between directories (KIP-113); there are none.
- v4+ says how large the directory's file system is and how much of it this process may use (KIP-827).
- v5+ says whether the directory is cordoned (KIP-1066); none is, as `cordoned.log.dirs` is not acted on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.storage.log_manager import LogManager
    from kbroker.storage.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.handlers")

UNKNOWN_SIZE = -1


def handle_describe_log_dirs(ctx: RequestContext, request: Any) -> Struct:
    """DescribeLogDirs v0-v5; see the module's docstring."""
    response = message("DescribeLogDirsResponse")
    log_manager: LogManager = ctx.services.log_manager
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    by_directory: dict[str, dict[str, list[UnifiedLog]]] = {each.path: {} for each in log_manager.directories}
    for topic_partition, log in log_manager.logs.items():
        if wanted is None or topic_partition in wanted:
            by_directory[log.parent].setdefault(topic_partition.topic, []).append(log)
    results = [_describe(response, log_manager, path, topics) for path, topics in by_directory.items()]
    answer: Struct = response(results=results)
    return answer


def _describe(response: Any, log_manager: LogManager, path: str, topics: dict[str, list[UnifiedLog]]) -> Any:
    result = response.DescribeLogDirsResult(log_dir=path, total_bytes=UNKNOWN_SIZE, usable_bytes=UNKNOWN_SIZE)
    if log_manager.failures.is_offline(path):
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    try:
        result.total_bytes, result.usable_bytes = log_manager.environment.files.space(path)
    except OSError as error:
        logger.error("cannot describe log directory %s: %s", path, error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.topics = [
        response.DescribeLogDirsTopic(
            name=name,
            partitions=[
                response.DescribeLogDirsPartition(
                    partition_index=log.topic_partition.partition, partition_size=log.size_bytes
                )
                for log in logs
            ],
        )
        for name, logs in topics.items()
    ]
    return result


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.DESCRIBE_LOG_DIRS, 0, 5, handle_describe_log_dirs),)
