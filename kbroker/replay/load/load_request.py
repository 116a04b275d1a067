"""What a load to Parquet is asked for and says, wherever it writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.manifest import Gap, Manifest
from kbroker.replay.load.planning import Selection, gone_text, selected
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_options import ReadOptions

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class LoadRequest(Selection):
    """What to load, from which brokers, into which directory."""

    bootstrap: str
    directory: str
    topics: Sequence[str] = ()
    compression: str = field(default="zstd", kw_only=True)

    def read_options(self) -> ReadOptions:
        """OptionError, which says what to change."""
        return selected(self.bootstrap, self.topics, self)


@dataclass(slots=True)
class LoadReport:
    """What a load did; sizes are those of the files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)
    leftovers: int = 0


def note_gap(allowed: bool, manifest: Manifest, report: LoadReport, gone: Range) -> None:
    """Offsets that are gone: in manifest and report.  LoadError where that is not allowed."""
    if not allowed:
        raise LoadError(gone_text(gone))
    found = Gap(*gone, time.time_ns() // 1_000_000)
    manifest.gaps.append(found)
    report.gaps.append(found)


def file_name(piece: Range, token: str) -> str:
    """Of the file that holds a range; the token tells it from what a run that was killed made of the same."""
    return f"{piece.topic}-{piece.partition}-{piece.start:020d}-{piece.stop - 1:020d}-{token}.parquet"
