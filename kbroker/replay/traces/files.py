"""The files of a trace: found, put in order, and cut into splits that tasks can read on their own.

Paths are local or URIs of a file system that pyarrow knows (`hdfs://`, `s3://`, `gs://`), files, directories or globs
of local files; each executor opens them itself, so all must see them.  Hidden files and files whose names start with
`_` are left out, as in Spark.

Logs that were rotated come in the order in which they were written: `server.log.2016-12-19-16` before
`server.log.2016-12-19-17` before `server.log`; `access.log.2.gz` before `access.log.1` before `access.log`.
"""

from __future__ import annotations

import glob
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs

from kbroker.replay.traces.errors import TraceError

SPLIT_BYTES = 64 << 20
SMALLEST_SPLIT_BYTES = 1 << 20
COMPRESSED_SPAN = 1 << 40
"""How far positions in a compressed file may go: its length is only known at its end."""

_NUMBER = re.compile(r"^\d{1,6}$")


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file and its size in bytes on disk; a row's sequence is `base` plus its position in the file."""

    path: str
    size: int
    base: int
    compressed: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Split:
    """The entries that begin at or after `start` and before `end`; the end of a compressed file is not known."""

    file: TraceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Files in order and the size of splits; small enough to travel with each task."""

    files: tuple[TraceFile, ...]
    split_bytes: int
    firsts: tuple[int, ...]
    count: int

    def split(self, number: int) -> Split:
        """Split `number` of `count`."""
        index = bisect_right(self.firsts, number) - 1
        file = self.files[index]
        if file.compressed:
            return Split(file, 0, COMPRESSED_SPAN)
        start = (number - self.firsts[index]) * self.split_bytes
        return Split(file, start, min(start + self.split_bytes, file.size))


def plan_files(paths: Sequence[str], parallelism: int, *, whole: bool, split_bytes: int | None = None) -> FilePlan:
    """Files and splits of `paths`; `whole` reads each file in one task.  Raises TraceError when there is nothing."""
    files = list_files(paths)
    total = sum(file.size for file in files)
    wanted = split_bytes or max(SMALLEST_SPLIT_BYTES, min(SPLIT_BYTES, -(-total // max(1, parallelism))))
    size = max(1, *(file.size for file in files)) if whole else wanted
    firsts, count = [], 0
    for file in files:
        firsts.append(count)
        count += 1 if file.compressed else max(1, -(-file.size // size))
    return FilePlan(tuple(files), size, tuple(firsts), count)


def list_files(paths: Sequence[str]) -> list[TraceFile]:
    """All files under `paths`, in the order in which they were written as far as names tell.  Raises TraceError."""
    found: dict[str, int] = {}
    for path in paths:
        found.update(_find(path))
    if not found:
        raise TraceError(f"no files in {', '.join(paths)}")
    files, base = [], 0
    for name in sorted(found, key=rotation_order):
        compressed = compression_of(name) is not None
        files.append(TraceFile(name, found[name], base, compressed))
        base += COMPRESSED_SPAN if compressed else found[name] + 1
    return files


def rotation_order(path: str) -> tuple[object, ...]:
    """Sorts a log's rotated files before the file that it still writes: by date, and from the highest number down."""
    folder, _, name = path.rpartition("/")
    if compression_of(name) is not None:
        name = name.rpartition(".")[0]
    stem, dot, rotation = name.partition(".log")
    if not dot or (rotation and rotation[0] not in ".-"):
        return (folder, name, 0, 0, "")
    suffix = rotation[1:]
    if not suffix:
        return (folder, stem, 2, 0, "")
    if _NUMBER.match(suffix):
        return (folder, stem, 1, -int(suffix), "")
    return (folder, stem, 0, 0, suffix)


def compression_of(path: str) -> str | None:
    """How a file is compressed, by its name; None when it is not."""
    codec = pa.Codec.detect(path) if path.endswith((".gz", ".bz2", ".zst", ".lz4")) else None
    return None if codec is None else str(codec.name)


def open_split(split: Split) -> BinaryIO:
    """A stream at the split's start, or one byte before it where that is not the file's.  Raises TraceError."""
    system, name = _system(split.file.path)
    try:
        if split.file.compressed:
            return cast(BinaryIO, system.open_input_stream(name, compression=compression_of(name)))
        stream = system.open_input_file(name)
        stream.seek(max(0, split.start - 1))
    except OSError as error:
        raise TraceError(f"{split.file.path} cannot be read: {error}") from None
    return cast(BinaryIO, stream)


def read_head(file: TraceFile, size: int) -> bytes:
    """The first bytes of a file, decompressed.  Raises TraceError."""
    with open_split(Split(file, 0, file.size)) as stream:
        try:
            return bytes(stream.read(size))
        except OSError as error:
            raise TraceError(f"{file.path} cannot be read: {error}") from None


def _find(path: str) -> Iterator[tuple[str, int]]:
    if "://" in path:
        yield from _find_in(*_system(path), path)
        return
    local = pyarrow.fs.LocalFileSystem()
    names: Iterable[str] = sorted(glob.glob(path)) if glob.has_magic(path) and not Path(path).exists() else [path]  # noqa: PTH207
    for name in names:
        yield from _find_in(local, str(Path(name).absolute()), name)


def _find_in(system: Any, name: str, shown: str) -> Iterator[tuple[str, int]]:
    prefix = shown.partition("://")[0] + "://" if "://" in shown else ""
    info = system.get_file_info(name)
    if info.type == pyarrow.fs.FileType.NotFound:
        raise TraceError(f"{shown}: there is no such file or directory")
    if info.type == pyarrow.fs.FileType.File:
        yield prefix + info.path, info.size
        return
    selector = pyarrow.fs.FileSelector(name, recursive=True)
    for inner in system.get_file_info(selector):
        below = PurePosixPath(inner.path).relative_to(name).parts
        if inner.type == pyarrow.fs.FileType.File and not any(part.startswith((".", "_")) for part in below):
            yield prefix + inner.path, inner.size


def _system(path: str) -> tuple[Any, str]:
    if "://" not in path:
        return pyarrow.fs.LocalFileSystem(), path
    try:
        system, name = pyarrow.fs.FileSystem.from_uri(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TraceError(f"{path}: {error}") from None
    return system, name
