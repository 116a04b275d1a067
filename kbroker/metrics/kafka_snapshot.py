"""What a scrape under Kafka's names reports, copied on the event loop.

It is `snapshot.take` with what is under Kafka's names alone: traffic by topic, the cluster's partitions, requests that
waited, and how counters have grown lately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS, PARTS
from kbroker.metrics.kafka_sources import KafkaFigures
from kbroker.metrics.recent import Counters, Reading
from kbroker.metrics.snapshot import Snapshot, take

if TYPE_CHECKING:
    from kbroker._fast.base.counters import Parts, RequestStats
    from kbroker.metrics.sources import Sources

#: Keys of readings, before the API's name.
TIMES, SIZES, WORKED, WHOLE = "times", "sizes", "worked", "whole"
#: Keys of readings.
LOOP_TIME = ("loop", "processor")
FLUSHES = ("flushes", "all")
QUEUED, WAITED, THROTTLED, HELD, SENT = PARTS
#: Produce and Fetch: Kafka shows requests that never came as well, dashboards of these alone.
ALWAYS = (0, 1)
FETCH, FETCH_CONSUMER, FETCH_FOLLOWER = "Fetch", "FetchConsumer", "FetchFollower"
BUCKETS = len(BUCKET_BOUNDS_NS) + 1
MINUTES_SECONDS = 300.0
MINUTE_SECONDS = 60.0
HALF_MINUTE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class KafkaSnapshot:
    """`now`, `minutes` and `minute`, `half_minute`: readings of `request_counters` and what `Sources.recent` adds: now,
    and as of so long ago."""

    base: Snapshot
    figures: KafkaFigures
    codes: tuple[tuple[str, int, int], ...]
    now: Reading
    minutes: Reading
    minute: Reading
    half_minute: Reading


async def take_kafka(sources: Sources) -> KafkaSnapshot:
    """Read everything once.  Call it on the event loop."""
    base = await take(sources)
    figures = await sources.kafka(sources.slices.pace())
    now = sources.recent.now()
    codes = tuple((sources.api_name(api), code, count) for (api, code), count in sources.requests.codes.items())
    before = sources.recent.before
    return KafkaSnapshot(
        base,
        figures,
        codes,
        now,
        before(now, MINUTES_SECONDS),
        before(now, MINUTE_SECONDS),
        before(now, HALF_MINUTE_SECONDS),
    )


def request_counters(requests: RequestStats, names: dict[int, str]) -> Counters:
    """Of each API of `names`: (TIMES, name) has count, nanoseconds and buckets; (one of PARTS, name) the same of those
    that had such a part; (WORKED, name) and (WHOLE, name) what to add to the buckets to have those of the work alone,
    and those up to the answer's last byte; (SIZES, name) count, bytes and buckets.  Fetches also by who sent them."""
    found: dict[tuple[str, ...], tuple[float, ...]] = {}
    for api, count, _, _, _, sum_ns, buckets in requests.snapshot():
        found[TIMES, names.get(api, str(api))] = (count, sum_ns, *buckets)
    for api in ALWAYS:
        found.setdefault((TIMES, names[api]), (0.0,) * (2 + BUCKETS))
    for parts in requests.parts_by_api(ALWAYS):
        _add_parts(found, names.get(parts[0], str(parts[0])), parts)
    for api, count, size, sizes in requests.sizes_by_api(ALWAYS):
        found[SIZES, names.get(api, str(api))] = (count, size, *sizes)
    (count, sum_ns, buckets), parts, (_, _, size, sizes) = requests.followers()
    followers: dict[tuple[str, ...], tuple[float, ...]] = {}
    followers[TIMES, FETCH_FOLLOWER] = (count, sum_ns, *buckets)
    followers[SIZES, FETCH_FOLLOWER] = (count, size, *sizes)
    _add_parts(followers, FETCH_FOLLOWER, parts)
    for (kind, _), numbers in followers.items():
        all_fetches = found.get((kind, FETCH))
        if all_fetches is None:
            continue
        found[kind, FETCH_CONSUMER] = tuple(a - b for a, b in zip(all_fetches, numbers, strict=True))
        found[kind, FETCH_FOLLOWER] = numbers
    return found


def _add_parts(found: dict[tuple[str, ...], tuple[float, ...]], name: str, row: Parts) -> None:
    _, parts, worked, whole = row
    for kind, (count, sum_ns, buckets) in zip(PARTS, parts, strict=True):
        found[kind, name] = (count, sum_ns, *buckets)
    found[WORKED, name] = worked
    found[WHOLE, name] = whole
