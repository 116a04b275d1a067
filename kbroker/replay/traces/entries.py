"""Entries of text files: lines, or events of several lines, streamed out of one split with bounded memory.

An entry belongs to the split in which it begins, so splits of any size together give each entry once.  The end
of a line is LF or CR LF.  Three rules say where entries begin:

- lines: at each line;
- opening: at each line that an expression matches; lines after it continue it.  Lines before the first such line of a
  file belong to nothing and come out as a problem;
- quoted: at each line that is outside of double quotes (CSV with line breaks in its fields).  Such files cannot be
  split: whether a quote opens or closes is known only from the file's start.

An entry larger than the limit is reported as a problem with its first bytes; the rest is skipped without being held in
memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from kbroker.replay.trace_schema import RAW_LIMIT

CHUNK_BYTES = 1 << 20
LINE_HEAD_BYTES = 1 << 16
"""An opening expression is tried on a line that is not complete yet once this much of it is there."""

TOO_LONG = "entry too long"
ORPHAN = "continuation without an event"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class EntryRule:
    """Where entries begin, and how large one may be.  `opening` matches at the start of a line."""

    opening: str | None = None
    quoted: bool = False
    limit: int = 16 << 20


class Entry(NamedTuple):
    """Its place in the file in bytes, its bytes without the line end, and what is wrong with it."""

    position: int
    data: bytes
    problem: str | None = None


Find = Callable[[bytes, bool], list[int]]
"""Where entries begin in bytes that start at a line; only places that more bytes could not change.  The flag says that
no more bytes follow."""


def read_entries(stream: BinaryIO, start: int, end: int, rule: EntryRule, chunk: int = CHUNK_BYTES) -> Iterator[Entry]:
    """The entries that begin in [start, end).  The stream stands at max(0, start - 1)."""
    reader = _Reader(stream, rule, start, chunk)
    if reader.seek_line(skip=start > 0):
        yield from reader.entries(end, first=start == 0)


class _Reader:
    def __init__(self, stream: BinaryIO, rule: EntryRule, start: int, chunk: int) -> None:
        self.stream = stream
        self.rule = rule
        self.chunk = chunk
        self.find = find_starts(rule)
        self.buffer = b""
        self.position = max(0, start - 1)
        self.eof = False

    def fill(self) -> None:
        # Reading as much again as is held keeps the repeated search for the next start linear.
        more = bytes(self.stream.read(max(self.chunk, len(self.buffer))))
        self.eof = not more
        self.buffer += more

    def drop(self, count: int) -> None:
        self.buffer = self.buffer[count:]
        self.position += count

    def seek_line(self, *, skip: bool) -> bool:
        """Goes to the first line that starts here; False when none does."""
        if not skip:
            self.fill()
            if self.buffer.startswith(_BOM):
                self.drop(len(_BOM))
            return bool(self.buffer)
        while True:
            self.fill()
            newline = self.buffer.find(b"\n")
            if newline >= 0:
                self.drop(newline + 1)
                return True
            if self.eof:
                return False
            self.drop(len(self.buffer))

    def entries(self, end: int, *, first: bool) -> Iterator[Entry]:
        lost = b"" if first and self.rule.opening is not None else None
        passing_over = False
        while True:
            if passing_over:
                passing_over = not self._drop_line()
            if not passing_over:
                starts = self.find(self.buffer, self.eof)
                # Bytes before the first start belong to an entry of an earlier split.
                begin = starts[0] if starts else len(self.buffer) if self.eof else self.buffer.rfind(b"\n") + 1
                if lost is not None:
                    lost = _cut(lost + self.buffer[:begin])
                    if lost and (starts or self.eof or self.position + begin >= end):
                        yield Entry(0, lost, ORPHAN)
                    lost = None if starts else lost
                yield from self._complete(starts, end)
                self.drop(starts[-1] if starts else begin)
                if self.position >= end:
                    return
                if self.eof and starts and self.buffer:
                    yield self._entry(self.position, self.buffer)
                elif (held := self._held()) > self.rule.limit:
                    if starts:
                        yield Entry(self.position, _cut(self.buffer), TOO_LONG)
                    passing_over = self.buffer[held - 1] != ord("\n")
                    self.drop(held)
            if self.eof:
                return
            self.fill()

    def _complete(self, starts: list[int], end: int) -> Iterator[Entry]:
        for begin, following in pairwise(starts):
            if self.position + begin < end:
                yield self._entry(self.position + begin, self.buffer[begin:following])

    def _held(self) -> int:
        """How many of the buffered bytes are decided: no further bytes can make an entry start within them."""
        line = self.buffer.rfind(b"\n") + 1
        undecided = self.rule.opening is not None and len(self.buffer) - line < LINE_HEAD_BYTES
        return line if undecided else len(self.buffer)

    def _drop_line(self) -> bool:
        newline = self.buffer.find(b"\n")
        self.drop(newline + 1 if newline >= 0 else len(self.buffer))
        return newline >= 0

    def _entry(self, position: int, data: bytes) -> Entry:
        if len(data) > self.rule.limit:
            return Entry(position, _cut(data), TOO_LONG)
        return Entry(position, data.removesuffix(b"\n").removesuffix(b"\r"))


def find_starts(rule: EntryRule) -> Find:
    """The search for a rule."""
    if rule.opening is not None:
        return _opening_finder(re.compile(rule.opening.encode(), re.MULTILINE))
    return _quoted_starts if rule.quoted else _line_starts


def _line_starts(data: bytes, eof: bool) -> list[int]:
    starts = [0, *(match.end() for match in re.finditer(b"\n", data))]
    return _without_empty_end(starts, data, eof)


def _quoted_starts(data: bytes, eof: bool) -> list[int]:
    starts, inside = [0], False
    for match in re.finditer(b'["\n]', data):
        if match[0] == b'"':
            inside = not inside
        elif not inside:
            starts.append(match.end())
    return _without_empty_end(starts, data, eof)


def _without_empty_end(starts: list[int], data: bytes, eof: bool) -> list[int]:
    return starts[:-1] if eof and starts[-1] == len(data) else starts


def _opening_finder(opening: re.Pattern[bytes]) -> Find:
    def find(data: bytes, eof: bool) -> list[int]:
        usable = data.rfind(b"\n") + 1
        if eof or len(data) - usable >= LINE_HEAD_BYTES:
            usable = len(data)
        starts = []
        for match in opening.finditer(data):
            if match.start() >= usable:
                break
            starts.append(match.start())
        return starts

    return find


def _cut(data: bytes) -> bytes:
    return data[:RAW_LIMIT]
