"""Records of one partition: by offset, by time, the newest, those that a filter lets through.

A look reads at most `MOST_BYTES`; where that is not enough, the answer says where to go on.  Where the
records come from is `partition_source`'s, what they say the reader's (`reader.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kbroker.console.parameters import NotShownError, NotThereError
from kbroker.console.partition_source import PartitionSource, bounds_of, source_of
from kbroker.console.record_filter import filter_of
from kbroker.console.record_rows import Found, RecordRow, Wanted
from kbroker.errors import KafkaError
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.metadata.image import TopicImage

STARTS = ("newest", "before", "offset", "oldest", "time")
MOST_RECORDS = 200
MOST_FIELD_BYTES = 1 << 20
READ_BYTES = 1 << 20
DECODED_READ_BYTES = 256 << 10
"""At a time where all records are decoded for a filter: other viewers' looks come in between."""
MOST_BYTES = 16 << 20
"""Read for one answer."""
LARGEST_BATCH_BYTES = 128 << 20
SEARCHED_OFFSETS = 20_000
"""How far back one look with a filter goes."""


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
    """The first offsets and the ends of the partitions, in order of their numbers; None where no broker answers
    for one."""

    topic: str
    partition_count: int
    starts: Sequence[int | None]
    ends: Sequence[int | None]


async def ends(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/ends?topic=&committed=: what a live tail asks, to look only where there is something new."""
    image = readable_topic(parts, parameters)
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    bounds = await bounds_of(parts, image, is_committed=is_committed)
    starts = [None if each is None else each[0] for each in bounds]
    found = [None if each is None else each[1] for each in bounds]
    return partial(Ends, image.name, len(image.partitions), starts, found)


def readable_topic(parts: ConsoleParts, parameters: Parameters) -> TopicImage:
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


async def messages(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/messages?topic=&partition=&from=&value=&count=&q=&key=&filter=&committed=&field_bytes="""
    image = readable_topic(parts, parameters)
    topic = image.name
    index = parameters.number("partition", 0, 0, 1 << 31)
    count = parameters.number("count", 50, 1, MOST_RECORDS)
    chosen = filter_of(parameters)
    if index >= len(image.partitions):
        raise NotThereError(f"topic {topic} has no partition {index}")
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    source = await source_of(parts, image, index, is_committed=is_committed)
    start, stop, newest = await range_of(source, parameters, count if chosen.is_open else SEARCHED_OFFSETS)
    wanted = Wanted(
        topic,
        start,
        stop,
        count,
        newest,
        chosen,
        parameters.number("field_bytes", 2048, 16, MOST_FIELD_BYTES),
        () if is_committed else None,
        display=parts.display,
        partition=index,
        is_readable=True,
        mask=parts.mask_of(topic),
    )
    with parts.reader.turn():
        found = await look_through(parts, source, wanted)
    return partial(
        Messages,
        topic,
        index,
        len(image.partitions),
        source.log_start_offset,
        source.end,
        found.rows[0].offset if newest and found.is_full else start,
        found.next_offset,
        found.looked_at,
        found.next_offset >= stop,
        found.problem,
        list(found.rows),
    )


async def range_of(source: PartitionSource, parameters: Parameters, window: int) -> tuple[int, int, bool]:
    """(first offset, end offset, whether the last records of the range are wanted rather than the first)."""
    kind, first, end = parameters.choice("from", STARTS), source.log_start_offset, source.end
    if kind == "oldest":
        return first, end, False
    if kind == "newest":
        return max(first, end - window), end, True
    value = parameters.number("value")
    if kind == "before":
        stop = max(first, min(value, end))
        return max(first, stop - window), stop, True
    if kind == "time":
        value = await source.offset_at(value)
    return max(first, min(value, end)), end, False


async def look_through(
    parts: ConsoleParts, source: PartitionSource, wanted: Wanted, most_bytes: int = MOST_BYTES
) -> Found:
    """Read on until there is enough, or too much was read."""
    files = parts.services.log_manager.environment.files
    rows: deque[RecordRow] = deque()
    total = Found(rows, wanted.start)
    left = most_bytes
    step_bytes = READ_BYTES if wanted.display is None or wanted.chosen.is_open else DECODED_READ_BYTES
    while total.next_offset < wanted.stop and left > 0:
        # The log start moves up while older records are being deleted.
        position = max(total.next_offset, source.log_start_offset)
        try:
            data = await source.read(position, min(step_bytes, left))
        except KafkaError as error:
            total.problem = str(error)
            break
        if data is None:
            total.next_offset = wanted.stop
            break
        if data.size_bytes > LARGEST_BATCH_BYTES:
            total.problem = f"The batch at offset {position} has {data.size_bytes} bytes, too many to show."
            break
        left -= data.size_bytes
        aborted = None if wanted.aborted is None else data.aborted
        count = wanted.count if wanted.newest else wanted.count - len(rows)
        room = wanted.room if wanted.newest else wanted.room - total.shown_bytes
        step = replace(wanted, start=position, count=count, aborted=aborted, room=room)
        found = await parts.reader.look(files, data.records, step)
        for row in found.rows:
            total.keep(row, wanted)
        total.is_full = total.is_full or found.is_full
        total.looked_at += found.looked_at
        total.problem = total.problem or found.problem
        if found.next_offset <= position and not found.rows:
            total.problem = total.problem or f"Nothing can be read at offset {position}."
            break
        total.next_offset = found.next_offset
        if not wanted.newest and (len(rows) >= wanted.count or found.is_full or total.shown_bytes >= wanted.room):
            break
    return total
