"""Where the records of many partitions go on by time, so that a page of them all is one list: the time of the record
before, or at, a place in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console.messages import look_through, readable_topic
from kbroker.console.parameters import BadParameterError, NotThereError
from kbroker.console.partition_source import source_of
from kbroker.console.record_filter import RecordFilter
from kbroker.console.record_rows import Wanted

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.metadata.image import TopicImage

MOST_PLACES = 100
FIELD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Head:
    """`offset`: the place, within what is there; `is_end`: nothing lies beyond it.  `timestamp`: of the next record;
    None where the offset beside the place has none, as behind a transaction's end or where compaction took it."""

    partition: int
    offset: int
    timestamp: int | None
    is_end: bool


async def heads(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/heads?topic=&at=&direction=&time=&committed=: `at` is partition:offset with commas; with `time`,
    in ms since the epoch, the offsets are those of that time, and the ones in `at` are not looked at."""
    image = readable_topic(parts, parameters)
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    backward = parameters.choice("direction", ("back", "forth")) == "back"
    time = parameters.number("time", -1, 0)
    found = []
    for partition, offset in _places(image, parameters.text("at")):
        found.append(await _head(parts, image, partition, offset, time, backward=backward, is_committed=is_committed))
    return lambda: found


def _places(image: TopicImage, text: str) -> Sequence[tuple[int, int]]:
    places = []
    for pair in text.split(","):
        partition, _, offset = pair.partition(":")
        if not all(each.isascii() and each.isdigit() and len(each) < 20 for each in (partition, offset)):
            raise BadParameterError("at must be a list of partition:offset")
        if int(partition) >= len(image.partitions):
            raise NotThereError(f"topic {image.name} has no partition {partition}")
        places.append((int(partition), int(offset)))
    if len(places) > MOST_PLACES:
        raise BadParameterError(f"at must have at most {MOST_PLACES} places")
    return places


async def _head(
    parts: ConsoleParts,
    image: TopicImage,
    partition: int,
    offset: int,
    time: int,
    *,
    backward: bool,
    is_committed: bool,
) -> Head:
    source = await source_of(parts, image, partition, is_committed=is_committed)
    if time >= 0:
        offset = await source.offset_at(time)
    offset = max(source.log_start_offset, min(offset, source.end))
    start, stop = (max(source.log_start_offset, offset - 1), offset) if backward else (offset, source.end)
    if start >= stop:
        return Head(partition, offset, None, is_end=True)
    aborted = () if is_committed else None
    wanted = Wanted(
        image.name, start, stop, 1, backward, RecordFilter(), FIELD_BYTES, aborted, display=None, partition=partition
    )
    with parts.reader.turn():
        looked = await look_through(parts, source, wanted, 1)  # One batch, however large.
    return Head(partition, offset, looked.rows[0].timestamp if looked.rows else None, is_end=False)
