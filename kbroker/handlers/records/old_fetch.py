"""Fetch (API 1) of versions 0 to 3, whose consumers know the message formats before record batches.

v0 and v1 get messages of magic 0, v2 and v3 of magic 0 and 1.  Up to v2 a partition's limit is hard: where the first
message is larger, a part of one tells the consumer so.  Topics that are stored in a format that the consumer knows are
sent as they are, others converted (`records/down_conversion`), by threads, chunk by chunk, within the budget of
`conversions`.  Followers get everything as it is.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.log.fetch_target import FetchTarget, is_enough
from kbroker._fast.records.record_batch import LOG_OVERHEAD, BatchError, BatchInfo, TruncatedBatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster, may_topic
from kbroker.handlers.records.conversions import MOST_BYTES
from kbroker.handlers.records.fetch_partition import EMPTY, failed, note_end, read_partition
from kbroker.records.compression import CompressionError
from kbroker.records.down_conversion import NoOlderCodecError, down_convert
from kbroker.records.layout import BATCH_OVERHEAD
from kbroker.replication.delayed_fetch import FetchWait
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.log.log_fields import LateRead, RecordSource
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.records.conversions import ConvertedRecords
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition
    from kbroker.storage.files.filesystem import FileSystem

    PartitionData = wire.FetchResponse.PartitionData
    Answers = list[tuple[FetchTarget, PartitionData]]

LAST_VERSION_OF_MAGIC_0 = 1
READ_BYTES = 256 << 10
SIZE = struct.Struct(">qi")


class _Asked(NamedTuple):
    topic: str
    target: FetchTarget


class _Job(NamedTuple):
    """A partition's records that are to be converted: `answer` gets what came of it."""

    region: FileRegion
    files: FileSystem
    answer: PartitionData
    partition: Partition
    least: int


async def handle_old_fetch(ctx: RequestContext, request: wire.FetchRequest) -> Struct:
    """Fetch v0-v3; see the module's docstring."""
    pace = ctx.services.slices.pace()
    asked = _asked(request)
    partitions = _partitions(ctx, asked)
    wait_ms = request.max_wait_ms if request.min_bytes > 0 else 0
    answers: Answers = []

    async def attempt(force: bool) -> bool:
        nonlocal answers
        answers, size, urgent, late = await _read(ctx, request, asked, pace)
        force = wait.watch(late, force)
        if not is_enough(size, max(request.min_bytes, bool(late)), wait.wait_ms, bool(partitions), urgent, force):
            return False
        is_empty = await _convert(ctx, request.replica_id, answers) == 0 and size > 0
        # When no record is left after conversion, the fetch waits on, else the consumer would fetch in a loop; errors
        # of the conversion are answered.
        return force or urgent or not is_empty or not ctx.open or any(answer.error_code for _, answer in answers)

    def ended(partition: RecordSource) -> None:
        note_end(ctx.services, ctx.api_version, request.replica_id, partitions[partition])

    wait = FetchWait(ctx.services.replica_manager.purgatory, tuple(partitions), wait_ms, ended)
    await wait.until(ctx, attempt)
    return _response(asked, answers)


def _asked(request: wire.FetchRequest) -> list[_Asked]:
    """The targets, each partition once."""
    found = {}
    for topic in request.topics:
        for row in topic.partitions:
            target = FetchTarget(
                topic.topic, ZERO_UUID, row.partition, row.fetch_offset, row.partition_max_bytes, -1, -1, -1
            )
            found[topic.topic, row.partition] = _Asked(topic.topic, target)
    return list(found.values())


def _partitions(ctx: RequestContext, asked: Iterable[_Asked]) -> dict[RecordSource, FetchTarget]:
    """The partitions that this broker leads, each with what is asked of it."""
    found: dict[RecordSource, FetchTarget] = {}
    for topic, target in asked:
        with suppress(KafkaError):
            found[ctx.services.replica_manager.partition(topic, target.index)] = target
    return found


async def _read(
    ctx: RequestContext, request: wire.FetchRequest, asked: Iterable[_Asked], pace: Pace
) -> tuple[Answers, int, bool, list[LateRead]]:
    """(each partition's part of the answer, bytes found, whether that must be answered at once, late reads)."""
    services, version = ctx.services, ctx.api_version
    left = min(request.max_bytes, services.fetch_max_bytes)
    answers: Answers = []
    found = 0
    any_urgent = False
    any_late: list[LateRead] = []
    for topic, target in asked:
        await pace
        error = target.refusal or _refusal(ctx, request.replica_id, topic, target.index)
        if error:
            answers.append((target, failed(target.index, error, None)))
            any_urgent = True
            continue
        answer, urgent, late = read_partition(services, version, request.replica_id, False, target, left, found == 0)
        any_late += () if late is None else (late,)
        size = _size(answer)
        found += size
        left = max(0, left - size)
        any_urgent = any_urgent or urgent
        answers.append((target, answer))
    return answers, found, any_urgent, any_late


def _refusal(ctx: RequestContext, replica_id: int, topic: str, index: int) -> ErrorCode:
    """Why a partition is not for this client, or this version, at all, before its log is looked at."""
    is_allowed = (
        may_cluster(ctx, Operation.CLUSTER_ACTION) if replica_id >= 0 else may_topic(ctx, Operation.READ, topic)
    )
    if not is_allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        config = ctx.services.replica_manager.partition(topic, index).log.config
    except KafkaError:
        return ErrorCode.NONE
    if replica_id >= 0:
        return ErrorCode.NONE
    if config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if config.message_magic > _magic_of(ctx) and not config.message_downconversion_enable:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _magic_of(ctx: RequestContext) -> int:
    return 0 if ctx.api_version <= LAST_VERSION_OF_MAGIC_0 else 1


def _size(answer: PartitionData) -> int:
    return 0 if answer.records is None else len(answer.records)


async def _convert(ctx: RequestContext, replica_id: int, answers: Answers) -> int:
    """Converts batches that this version cannot read; returns the bytes of all records.  Does nothing for followers: a
    replica must hold the same bytes as its leader, and one that does not know the format rejects them itself."""
    conversions = ctx.services.conversions
    magic = _magic_of(ctx)
    jobs = list(_jobs(ctx, answers, magic)) if replica_id < 0 else []
    if jobs and ctx.open:
        log = jobs[0].partition.log
        room = conversions.room(jobs[0].files, log.parent)
        async with conversions.turn:
            began = time.perf_counter()
            count = await asyncio.get_running_loop().run_in_executor(None, _convert_all, jobs, magic, room)
            conversions.fetched(count, time.perf_counter() - began)
            room.settle()
    return sum(_size(answer) for _, answer in answers)


def _jobs(ctx: RequestContext, answers: Answers, magic: int) -> Iterator[_Job]:
    for target, answer in answers:
        region = answer.records
        if answer.error_code or not isinstance(region, FileRegion) or not region.size:
            continue
        partition = ctx.services.replica_manager.partition(target.topic or "", target.index)
        if partition.log.config.message_magic > magic:
            yield _Job(region, partition.log.local.environment.files, answer, partition, target.fetch_offset)


def _convert_all(jobs: Iterable[_Job], magic: int, room: ConvertedRecords) -> int:
    """What a thread does: the records that were converted.

    Converted bytes are limited per partition to the bytes that were read, and in all to MOST_BYTES; the first batch
    comes whole.
    """
    total = 0
    for job in jobs:
        start, region = room.size, job.region
        end = min(start + region.size, MOST_BYTES)
        if start and start >= end:
            job.answer.records = EMPTY
            continue
        error = ErrorCode.NONE
        whole = False
        try:
            for chunk, info in _batches(region, job.files):
                whole = True
                messages, count = down_convert(chunk, info, magic, job.least)
                if room.size > start and len(messages) > end - room.size:
                    # The messages that fit, and a part of the next one, which consumers ignore.
                    room.write(memoryview(messages)[: max(0, end - room.size)])
                    break
                if messages:
                    room.write(messages)
                total += count
        except NoOlderCodecError:
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except (BatchError, CompressionError):
            error = ErrorCode.CORRUPT_MESSAGE
        except OSError as problem:
            error = job.partition.log.storage_error("reading records", problem).code
        if room.size > start:
            # An error behind the converted records is answered by the fetch that reaches it.
            job.answer.records = room.region(start, room.size - start)
        elif error:
            job.answer.records, job.answer.error_code = EMPTY, error
            job.answer.high_watermark = -1
        elif whole:
            job.answer.records = EMPTY
        else:
            job.answer.records = _part_of_a_message(region.size)
    return total


def _batches(region: FileRegion, files: FileSystem) -> Iterator[tuple[memoryview, BatchInfo]]:
    """The whole batches of a range of a segment, with the chunk that each lies in; their checksums are verified."""
    position, end = region.position, region.position + region.size
    while end - position > LOG_OVERHEAD:
        data = memoryview(files.pread(region.fd, min(READ_BYTES, end - position), position))
        at = 0
        while True:
            try:
                info = read_stored_header(data, at, check_crc=True)
            except TruncatedBatchError:
                break
            yield data, info
            at += info.size_in_bytes
        if at == 0:
            size = SIZE.unpack_from(data)[1] + LOG_OVERHEAD
            if size <= len(data) or size > end - position:
                return
            data = memoryview(files.pread(region.fd, size, position))
            info = read_stored_header(data, 0, check_crc=True)
            yield data, info
            at = size
        position += at


def _part_of_a_message(size: int) -> bytes:
    """What tells an old consumer that a message is larger than it asked for."""
    return SIZE.pack(-1, max(size + 1, BATCH_OVERHEAD))[:size]


def _response(asked: Iterable[_Asked], answers: Answers) -> Struct:
    topics: dict[str, wire.FetchResponse.FetchableTopicResponse] = {}
    for (topic, _), (_, answer) in zip(asked, answers, strict=True):
        if topic not in topics:
            topics[topic] = wire.FetchResponse.FetchableTopicResponse(topic=topic)
        topics[topic].partitions.append(answer)
    return wire.FetchResponse(responses=list(topics.values()))
