"""Records of one partition: by offset, by time, the newest, those that hold a text.

A look reads at most `MOST_BYTES`; where that is not enough, the answer says where to go on.  Positions are found on the
loop, as for a fetch; the rest is the reader's (`reader.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kbroker.console.parameters import BadParameterError, NotShownError, NotThereError
from kbroker.console.record_rows import Found, RecordRow, Wanted
from kbroker.errors import KafkaError
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.storage.log.log_lookup import DeferredSearch, find_by_timestamp
from kbroker.storage.log.log_values import FetchIsolation

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import Parts, Value
    from kbroker.metadata.image import TopicImage
    from kbroker.storage.log.unified_log import UnifiedLog

STARTS = ("newest", "before", "offset", "oldest", "time")
MOST_RECORDS = 200
MOST_FIELD_BYTES = 1 << 20
READ_BYTES = 1 << 20
MOST_BYTES = 16 << 20
"""Read for one answer."""
LARGEST_BATCH_BYTES = 128 << 20
MOST_PARTITIONS = 1_000
SEARCHED_OFFSETS = 20_000
"""How far back one look for a text goes."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Records in order of their offsets.  `first_offset` and `next_offset`: the range that was searched; `end_offset`:
    the end of the readable offsets.  `problem`: why a part could not be read."""

    topic: str
    partition: int
    partition_count: int
    log_start_offset: int
    end_offset: int
    first_offset: int
    next_offset: int
    looked_at: int
    is_whole: bool
    problem: str
    records: Sequence[RecordRow]


@dataclass(frozen=True, slots=True)
class Ends:
    """The end offsets of the first partitions, in order of their numbers; None for those that are led elsewhere."""

    topic: str
    partition_count: int
    ends: Sequence[int | None]


async def ends(parts: Parts, parameters: Parameters) -> Value:
    """GET /console/api/ends?topic=&committed=: what a live tail asks, to look only where there is something new."""
    image = _topic(parts, parameters)
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    led = parts.services.replica_manager.topics.get(image.name, {})
    found: list[int | None] = []
    for index in range(min(len(image.partitions), MOST_PARTITIONS)):
        partition = led.get(index)
        found.append(None if partition is None else partition.log.consumer_bound(is_committed))
    return partial(Ends, image.name, len(image.partitions), found)


def _topic(parts: Parts, parameters: Parameters) -> TopicImage:
    """The topic whose records are asked for, where they are shown."""
    if parts.why_no_messages:
        raise NotShownError(parts.why_no_messages)
    topic = parameters.text("topic")
    image = parts.services.metadata_cache.topic(topic)
    if image is None or not parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
        raise NotThereError(f"there is no topic {topic}")
    if not parts.shows_messages_of(topic):
        raise NotShownError(f"This takes READ on the topic {topic}.")
    return image


async def messages(parts: Parts, parameters: Parameters) -> Value:
    """GET /console/api/messages?topic=&partition=&from=&value=&count=&q=&committed=&field_bytes="""
    image = _topic(parts, parameters)
    topic = image.name
    index = parameters.number("partition", 0, 0, 1 << 31)
    count = parameters.number("count", 50, 1, MOST_RECORDS)
    needle = parameters.text("q", "").lower().encode()
    if index >= len(image.partitions):
        raise NotThereError(f"topic {topic} has no partition {index}")
    log = parts.services.replica_manager.partition(topic, index).log
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    end = log.consumer_bound(is_committed)
    start, stop, newest = await _range(log, parameters, end, SEARCHED_OFFSETS if needle else count)
    wanted = Wanted(
        topic,
        start,
        stop,
        count,
        newest,
        needle,
        parameters.number("field_bytes", 2048, 16, MOST_FIELD_BYTES),
        () if is_committed else None,
    )
    with parts.reader.turn():
        found = await _look(parts, log, wanted)
    return partial(
        Messages,
        topic,
        index,
        len(image.partitions),
        log.log_start_offset,
        end,
        start,
        found.next_offset,
        found.looked_at,
        found.next_offset >= stop,
        found.problem,
        list(found.rows),
    )


async def _range(log: UnifiedLog, parameters: Parameters, end: int, window: int) -> tuple[int, int, bool]:
    """(first offset, end offset, whether the last records of the range are wanted rather than the first)."""
    kind = parameters.choice("from", STARTS)
    if kind == "oldest":
        return log.log_start_offset, end, False
    if kind == "newest":
        return max(log.log_start_offset, end - window), end, True
    value = parameters.number("value")
    if kind == "before":
        stop = max(log.log_start_offset, min(value, end))
        return max(log.log_start_offset, stop - window), stop, True
    if kind == "time":
        value = await _offset_at(log, value, end)
    return max(log.log_start_offset, min(value, end)), end, False


async def _offset_at(log: UnifiedLog, timestamp: int, end: int) -> int:
    """The first offset at or after a time; the end where there is none."""
    try:
        found = find_by_timestamp(log, timestamp)
        while isinstance(found, DeferredSearch):
            deferred = found
            found = await asyncio.get_running_loop().run_in_executor(None, deferred.search)
            if found is None:
                found = deferred.go_on()
    except (OSError, ValueError) as error:
        raise BadParameterError(f"the log cannot be searched by time: {error}") from error
    return end if found is None else found.offset


async def _look(parts: Parts, log: UnifiedLog, wanted: Wanted) -> Found:
    """Read on until there is enough, or too much was read."""
    files = parts.services.log_manager.environment.files
    isolation = FetchIsolation.HIGH_WATERMARK if wanted.aborted is None else FetchIsolation.TXN_COMMITTED
    rows: deque[RecordRow] = deque(maxlen=wanted.count if wanted.newest else None)
    total = Found(rows, wanted.start)
    left = MOST_BYTES
    while total.next_offset < wanted.stop and left > 0:
        # The log start moves up while older records are being deleted.
        position = max(total.next_offset, log.log_start_offset)
        try:
            data = log.read(position, min(READ_BYTES, left), isolation, True)
        except KafkaError as error:
            total.problem = str(error)
            break
        if data.records is None or not data.size:
            total.next_offset = wanted.stop
            break
        if data.size > LARGEST_BATCH_BYTES:
            total.problem = f"The batch at offset {position} has {data.size} bytes, too many to show."
            break
        left -= data.size
        aborted = wanted.aborted
        if aborted is not None:
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        count = wanted.count if wanted.newest else wanted.count - len(rows)
        step = replace(wanted, start=position, count=count, aborted=aborted)
        found = await parts.reader.look(files, data.records, step)
        rows.extend(found.rows)
        total.looked_at += found.looked_at
        total.problem = total.problem or found.problem
        if found.next_offset <= position and not found.rows:
            total.problem = total.problem or f"Nothing can be read at offset {position}."
            break
        total.next_offset = found.next_offset
        if not wanted.newest and len(rows) >= wanted.count:
            break
    return total
