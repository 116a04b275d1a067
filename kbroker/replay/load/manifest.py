"""The manifest of a load: which files hold which offsets.  What it does not name is not part of the load.

`_manifest.json`, replaced as a whole after each round of files; on Spark's file systems a version of `versions`:

    {"format": "kbroker-load", "version": 1, "isolation": "read_committed",
     "topics": {"orders": "<topic id in hex>"},
     "files": [{"topic", "partition", "start", "end", "rows", "bytes", "path", "schema_version"}],
     "gaps":  [{"topic", "partition", "start", "end", "noticed_ms"}]}

Offsets are start <= offset < end; `path` is relative, and null for a range without records (compacted away, or markers
of transactions).  The files and gaps of a partition follow each other without holes and overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from kbroker.client.list_offsets import TopicPartition
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import read_json, write_json
from kbroker.types import JsonObject

MANIFEST = "_manifest.json"
FORMAT, VERSION, SCHEMA_VERSION = "kbroker-load", 1, 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One range of a partition's offsets and the file that holds its records."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    path: str | None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were gone before they could be loaded, noticed at a time in milliseconds since 1970."""

    topic: str
    partition: int
    start: int
    end: int
    noticed_ms: int


@dataclass(slots=True)
class Manifest:
    """See the module's text."""

    where: str
    isolation: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    files: list[FileEntry] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """Of a load on a file system that the driver and the executors share."""
        return Path(self.where)

    @classmethod
    def of(cls, plain: object, where: str) -> Self:
        """An empty one of None.  LoadError for a manifest that is not ours or contradicts itself."""
        if plain is None:
            return cls(where)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT or plain.get("version") != VERSION:
            raise LoadError(f"what is at {where} is not a manifest of version {VERSION} of a load")
        try:
            found = cls(
                where,
                plain["isolation"],
                dict(plain["topics"]),
                [FileEntry(**row) for row in plain["files"]],
                [Gap(**row) for row in plain["gaps"]],
            )
        except (KeyError, TypeError) as error:
            raise LoadError(f"the manifest at {where} is not as a load writes it: {error}") from None
        found.check()
        return found

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The one in a directory, empty where there is none.  LoadError as `of`, and where a file is gone."""
        found = cls.of(read_json(directory / MANIFEST), str(directory))
        found.check_files(lambda path: (directory / path).is_file())
        return found

    @classmethod
    def existing(cls, directory: Path) -> Self:
        """LoadError where there is none."""
        if not (directory / MANIFEST).is_file():
            raise LoadError(f"{directory} has no {MANIFEST}: it is not the output of kbroker load to-parquet")
        return cls.read(directory)

    def write(self) -> None:
        """Replace the file in the manifest's directory."""
        write_json(self.directory / MANIFEST, self.plain())

    def plain(self) -> JsonObject:
        """What `of` takes: see the module's text."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "isolation": self.isolation,
            "topics": self.topics,
            "files": [asdict(row) for row in sorted(self.files, key=_place)],
            "gaps": [asdict(row) for row in sorted(self.gaps, key=_place)],
        }

    def named(self) -> set[str]:
        """The relative paths of its files."""
        return {row.path for row in self.files if row.path is not None}

    def go_on_with(self, isolation: str) -> None:
        """LoadError where it was loaded with another isolation."""
        if self.isolation not in ("", isolation):
            raise LoadError(f"{self.where} was loaded with isolation {self.isolation}: go on with that")
        self.isolation = isolation

    def ranges(self) -> list[FileEntry | Gap]:
        """Files and gaps in the order of topics, partitions and offsets."""
        everything: list[FileEntry | Gap] = [*self.files, *self.gaps]
        return sorted(everything, key=_place)

    def ends(self) -> dict[TopicPartition, int]:
        """Where the next load goes on."""
        ends: dict[TopicPartition, int] = {}
        for row in self.ranges():
            at = (row.topic, row.partition)
            ends[at] = max(ends.get(at, 0), row.end)
        return ends

    def check(self) -> None:
        """LoadError unless ranges follow each other and files are as they are read."""
        last: dict[TopicPartition, int] = {}
        for row in self.ranges():
            at = (row.topic, row.partition)
            if row.start != last.get(at, row.start) or row.end <= row.start:
                raise LoadError(
                    f"the manifest at {self.where} has {at[0]}-{at[1]} up to {last.get(at)} and then "
                    f"{row.start} to {row.end}: it was changed by something else; bring back the one before"
                )
            last[at] = row.end
        for entry in self.files:
            if entry.schema_version != SCHEMA_VERSION:
                raise LoadError(f"{entry.path} has schema version {entry.schema_version}, {SCHEMA_VERSION} is read")

    def check_files(self, is_there: Callable[[str], bool]) -> None:
        """LoadError where one of its files is gone."""
        for path in sorted(self.named()):
            if not is_there(path):
                raise LoadError(
                    f"{self.where}/{path} is in the manifest and is gone: bring it back, or load into a new directory"
                )

    def leftovers(self) -> Iterator[Path]:
        """Files of loads that were killed: ours by their names, and named by no manifest."""
        named = {self.directory / path for path in self.named()}
        for pattern in ("topic=*/partition=*/*.parquet", "topic=*/partition=*/.*.tmp", f".{MANIFEST}.*.tmp"):
            yield from (path for path in self.directory.glob(pattern) if path not in named)


def _place(row: FileEntry | Gap) -> tuple[str, int, int]:
    return row.topic, row.partition, row.start
