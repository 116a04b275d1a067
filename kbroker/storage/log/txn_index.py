"""Aborted transactions of a segment: `<base offset>.txnindex`, made with the first entry.

Entry, 34 bytes big endian (Kafka's AbortedTxn, version 0):

    version int16 | producer_id int64 | first_offset int64 | last_offset int64 | last_stable_offset int64

`last_offset` is the abort marker's; entries ascend in it.  `last_stable_offset` is what it was right after the
marker, so that a search may stop at the first entry whose value has passed the upper bound of a fetch.  Entries are
few and are read whole; an append failing midway leaves a torn entry, which `sane_bytes` cuts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import Offset

ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size
CURRENT_VERSION = 0


class CorruptIndexError(ValueError):
    """An index file that cannot be what its segment wrote."""


class AbortedTransaction(NamedTuple):
    """A transaction that ended with an abort marker."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def decode_entries(data: bytes, path: str) -> Iterator[AbortedTransaction]:
    """The entries of a file.  CorruptIndexError on a torn entry or another version."""
    if len(data) % ENTRY_BYTES:
        raise CorruptIndexError(f"{path}: {len(data)} bytes are not a whole number of {ENTRY_BYTES}-byte entries")
    for version, *fields in ENTRY.iter_unpack(data):
        if version != CURRENT_VERSION:
            raise CorruptIndexError(f"{path}: entry version {version}, expected {CURRENT_VERSION}")
        yield AbortedTransaction(*fields)


class TransactionIndex:
    """The aborted transactions of one segment, held in memory once read."""

    __slots__ = ("_entries", "_files", "_stored", "base_offset", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: Offset, *, exists: bool) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self._stored = 0

    @property
    def has_entries(self) -> bool:
        """Whether there are entries, without reading the file: a file is made only with its first entry."""
        return self._entries is None or bool(self._entries)

    @property
    def entries(self) -> list[AbortedTransaction]:
        """The aborted transactions, read when first needed.  ValueError for a damaged file."""
        if self._entries is None:
            self._entries = list(decode_entries(self._files.read_file(self.path), self.path))
            self._stored = len(self._entries)
        return self._entries

    def sanity_check(self, end_offset: Offset | None = None) -> None:
        """Raises CorruptIndexError for a file without entries, or with an impossible one.

        Valid entries ascend from the segment's base offset, end below `end_offset`, and have their first offset before
        the marker's.
        """
        last = self.base_offset - 1
        for entry in self.entries:
            if entry.last_offset <= last or (end_offset is not None and entry.last_offset >= end_offset):
                raise CorruptIndexError(f"{self.path}: {entry} is out of order in a segment from {self.base_offset}")
            if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset:
                raise CorruptIndexError(f"{self.path}: {entry} is no transaction")
            last = entry.last_offset
        if not self.entries:
            raise CorruptIndexError(f"{self.path} is empty")

    def append(self, entry: AbortedTransaction) -> None:
        """Adds an entry.  Readers find it from now on, even when OSError says that it could not be written."""
        entries = self.entries
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise ValueError(f"aborted transaction {entry} does not come after {entries[-1]}")
        assert self.base_offset <= entry.last_offset and entry.first_offset < entry.last_offset, (self.path, entry)
        assert entry.last_stable_offset <= entry.last_offset + 1, (self.path, entry)
        entries.append(entry)
        self.write_tail()

    def write_tail(self) -> None:
        """Writes the entries that are only in memory because the disk had no room for them."""
        if self._entries is None or self._stored == len(self._entries):
            return
        assert self._stored < len(self._entries), (self.path, self._stored, len(self._entries))
        data = b"".join(ENTRY.pack(CURRENT_VERSION, *entry) for entry in self._entries[self._stored :])
        fd = self._files.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            self._files.pwrite(fd, data, self._stored * ENTRY_BYTES)
        finally:
            self._files.close(fd)
        self._stored = len(self._entries)

    def truncate_to(self, offset: Offset) -> None:
        """Forgets transactions whose marker is at or after `offset`."""
        entries = self.entries
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) == len(entries):
            return
        self._entries = kept
        if not kept:
            self._files.unlink_if_exists(self.path)
        elif len(kept) < self._stored:
            self._resize(len(kept) * ENTRY_BYTES)
        self._stored = min(self._stored, len(kept))
        assert not kept or kept[-1].last_offset < offset, (self.path, kept[-1], offset)

    def reset(self) -> None:
        """Starts again without entries."""
        self._entries = []
        self._stored = 0
        self._files.unlink_if_exists(self.path)

    def _resize(self, size: int) -> None:
        fd = self._files.open(self.path, os.O_WRONLY)
        try:
            self._files.ftruncate(fd, size)
        finally:
            self._files.close(fd)

    def sync(self) -> None:
        """Makes the entries durable; a segment without any has no file."""
        if self._entries is None or self._entries:
            fd = self._files.open(self.path, os.O_WRONLY)
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def collect(self, fetch_offset: Offset, upper_bound: Offset, into: list[AbortedTransaction]) -> bool:
        """Adds those that overlap [fetch_offset, upper_bound).  True when no later segment can hold another."""
        for entry in self.entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                into.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False
