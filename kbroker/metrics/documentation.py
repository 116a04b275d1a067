"""docs/metrics.md, written from the families that a scrape has: `python -m kbroker.metrics.documentation`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metrics.snapshot import Snapshot

INTRODUCTION = """# Metrics

Written by `make docs` from what the broker itself serves; do not edit.

`http://127.0.0.1:9644/metrics` (`metrics.listener`) answers in the text formats of Prometheus and OpenMetrics. A scrape
copies what it needs on the event loop, in slices of its time, and is rendered by a thread.

- Counters count from the start of the process; sizes are bytes, times seconds.
- Series with the labels `topic` and `partition` are there up to `kbroker.metrics.max.partitions` (2,000) partitions;
  with more, sums by topic remain, and beyond as many topics the sums over all. The same holds for committed offsets.
  Partitions that fail to be compacted are always named, up to that number.
- How dirty a log is was found by the cleaner's last look at it, at most `log.cleaner.backoff.ms` ago while one of its
  threads is free.

Worth an alert: `kbroker_cleaner_uncleanable_partitions`, `kbroker_cleaner_dead_threads` or `kbroker_log_damages`
above 0; `kbroker_cleaner_oldest_dirty_seconds` and
`kbroker_retention_oldest_deletable_seconds` that only grow; `kbroker_log_dir_refusing`; `kbroker_log_dirs_offline`;
`kbroker_loop_delay_seconds` with a tail; `kbroker_tls_certificate_left_seconds` below two weeks, and a
`kbroker_tls_store_changes_total` with the outcome `failed` that grows. What to do then: [operations.md](operations.md).
"""


def empty_snapshot() -> Snapshot:
    """What a scrape of a broker without anything would find."""
    from kbroker._fast.base.counters import RequestStats
    from kbroker.metrics.loop_delay import LoopDelaySampler
    from kbroker.metrics.snapshot import take
    from kbroker.metrics.sources import Sources

    return asyncio.run(take(Sources("", 0, "", RequestStats(), str, LoopDelaySampler())))


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Section, name as scraped, type, labels and meaning of every family."""
    from kbroker.metrics.exposition import SECTIONS

    snapshot = empty_snapshot()
    for title, section in SECTIONS:
        for family in section(snapshot):
            labels = getattr(family, "_labelnames", ())
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            if family.type == "info":
                labels = tuple(family.samples[0].labels)
            yield title, name, family.type, ", ".join(labels), family.documentation


def markdown() -> str:
    """The page."""
    parts = [INTRODUCTION]
    section = ""
    for title, name, kind, labels, text in rows():
        if title != section:
            section = title
            parts.append(f"\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
        parts.append(f"| `{name}` | {kind} | {labels} | {text} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(markdown())
