"""Offset and time index files of a segment.

`<base offset>.index` has 8-byte entries, `<base offset>.timeindex` 12-byte ones (layouts in `_fast/log/index`).
The files live as in Kafka.  While its segment is active, a file has its full size (`segment.index.bytes`, rounded down
to whole entries; sparse, so it costs nothing), zero-filled behind the entries.  When the segment becomes inactive, the
file is trimmed to its entries.

New entries stay in memory until 512 of them are due, or the log is flushed, rolled, trimmed or closed; then one
`pwrite` puts them into the file.  A crash loses them without harm: what lies above the recovery point is indexed
again at load, and the recovery point never moves before the entries are written.  Lookups read the file through a
map that is made on the first lookup that needs it and given up under the budget of open files.

A file is full at `max_entries`; a time index one entry earlier, because the last slot belongs to the final entry at
roll.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.batch_seek import find_batch
from kbroker._fast.log.index import NEEDS_MAP, NO_SLOT, TAIL_ENTRIES, OffsetTable, TimeTable
from kbroker.log_output import RateLimitedLog
from kbroker.records.layout import BATCH_OVERHEAD
from kbroker.storage.files.filesystem import FileSystem, naming
from kbroker.storage.files.log_dir_failure import NO_SPACE
from kbroker.storage.files.open_files import HolderQueue
from kbroker.types import Offset, Position

complaints = RateLimitedLog(logging.getLogger("kbroker.storage"))

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
ANY_OFFSET = Offset(-1 << 63)


class IndexFile:
    """What both indexes share: the file behind a table of entries.  Its segment alone changes it."""

    __slots__ = (
        "_entry_bytes",
        "_files",
        "_open_files",
        "_preallocated",
        "_registered",
        "_untrimmed",
        "base_offset",
        "max_entries",
        "path",
        "recently_used",
    )

    table: OffsetTable | TimeTable

    def __init__(
        self,
        files: FileSystem,
        open_files: HolderQueue,
        path: str,
        base_offset: Offset,
        max_bytes: int,
        entry_bytes: int,
    ) -> None:
        self._files = files
        self._open_files = open_files
        self._entry_bytes = entry_bytes
        self._registered = False
        self._preallocated = False
        self._untrimmed = False
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // entry_bytes
        self.recently_used = False

    # -- the file -----------------------------------------------------------------------------------------------------

    @property
    def stored_bytes(self) -> int:
        """Bytes of the entries that are in the file."""
        return self.table.stored * self._entry_bytes

    def _stored_entries(self) -> tuple[int, bytes]:
        """How many entries the file holds, and the last one.  Zero entries behind them are preallocated space."""
        try:
            fd = self._files.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return 0, b""
        try:
            with naming(self.path):
                return self._find_end(fd, self._files.size(fd) // self._entry_bytes)
        finally:
            self._files.close(fd)

    def _find_end(self, fd: int, entries: int) -> tuple[int, bytes]:
        size = self._entry_bytes
        if entries == 0:
            return 0, b""
        last = self._files.pread(fd, size, (entries - 1) * size)
        if any(last):
            return entries, last
        low, high = 0, entries - 1
        while low < high:
            middle = (low + high) // 2
            if any(self._files.pread(fd, size, middle * size)):
                low = middle + 1
            else:
                high = middle
        return low, self._files.pread(fd, size, (low - 1) * size) if low else b""

    def _attach(self) -> None:
        """Maps the stored entries (an active file whole, so that later entries appear in the same map)."""
        table = self.table
        stored_bytes = table.stored * self._entry_bytes
        fd = self._files.open(self.path, os.O_RDONLY)
        try:
            length = self._files.size(fd)
            if length < stored_bytes:
                raise OSError(f"{self.path} has {length} bytes, {stored_bytes} were written")
            with naming(self.path):
                table.attach(self._files.map_readonly(fd, length))
        finally:
            self._files.close(fd)
        if not self._registered:
            self._registered = True
            self._open_files.opened(self)

    def release(self) -> bool:
        """Gives the map up; the next lookup makes it again."""
        self.table.attach(None)
        self._registered = False
        return True

    def check_invariants(self) -> None:
        """Raises AssertionError unless the file holds no more entries than there are, and has room for those."""
        table = self.table
        assert 0 <= table.stored <= table.entries, (self.path, table.stored, table.entries)
        assert table.entries <= self.max_entries or table.stored == table.entries, (self.path, table.entries)
        assert table.mapped is None or table.mapped.size >= self.stored_bytes, self.path

    def write_tail(self, *, sync: bool = False, preallocate: bool = True) -> None:
        """Puts the entries in memory into the file; with `sync` they are durable afterwards."""
        if self._untrimmed:
            self.trim()
        table = self.table
        pending = table.entries != table.stored
        if not pending and not sync:
            return
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if pending:
                if preallocate and not self._preallocated:
                    self._files.ftruncate(fd, self.max_entries * self._entry_bytes)
                    self._preallocated = True
                self._files.pwrite(fd, table.tail_bytes(), table.stored * self._entry_bytes)
                table.mark_stored()
            if sync:
                self._files.fsync(fd)
        finally:
            self._files.close(fd)

    def create(self) -> None:
        """Makes the file, empty and with its full size, as a new active segment has it."""
        self._resize(os.O_TRUNC)

    def extend(self) -> None:
        """Gives the file of a segment that is active again its full size."""
        self._resize(0)

    def _resize(self, flags: int) -> None:
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT | flags)
        try:
            self._files.ftruncate(fd, self.max_entries * self._entry_bytes)
            self._preallocated = True
        finally:
            self._files.close(fd)

    def trim(self) -> None:
        """Writes what is in memory and cuts the file to its entries."""
        table = self.table
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if table.entries != table.stored:
                self._files.pwrite(fd, table.tail_bytes(), table.stored * self._entry_bytes)
                table.mark_stored()
            self._files.ftruncate(fd, table.entries * self._entry_bytes)
        finally:
            self._files.close(fd)
        self._preallocated = self._untrimmed = False
        assert table.stored == table.entries, (self.path, table.stored, table.entries)
        if table.mapped is not None and table.mapped.size > table.entries * self._entry_bytes:
            table.attach(None)

    def settle(self, *, trim: bool) -> None:
        """`trim` or `write_tail` for an index made again from its log.

        On a disk without room the entries stay in memory, where look-ups find them, until a flush writes them.
        """
        try:
            if trim:
                self.trim()
            else:
                self.write_tail()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._untrimmed |= trim
            complaints.warning("index", "%s: there is no room for its entries, which stay in memory", self.path)

    def keep(self, entries: int) -> None:
        """Drops the entries from `entries` on, in memory and in the file (whose rest becomes zeros)."""
        table = self.table
        if entries >= table.entries:
            return
        cut_file = entries < table.stored
        if entries and entries <= table.stored and table.mapped is None:
            self._attach()
        table.truncate(entries)
        assert table.stored <= table.entries == entries, (self.path, table.stored, table.entries, entries)
        if CHECKED:
            self.check_invariants()
        if not cut_file:
            return
        table.attach(None)
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            self._files.ftruncate(fd, entries * self._entry_bytes)
            if self._preallocated:
                self._files.ftruncate(fd, self.max_entries * self._entry_bytes)
        finally:
            self._files.close(fd)

    def close(self) -> None:
        """Unmap and close the file; it opens again when it is needed."""
        if self._registered:
            self._open_files.closed(self)
            self.release()

    def _slot_for(self, key: int) -> int:
        slot = self.table.slot_for(key)
        if slot == NEEDS_MAP:
            self._attach()
            slot = self.table.slot_for(key)
        self.recently_used = True
        return slot

    def _get(self, slot: int) -> tuple[int, int]:
        if slot < self.table.stored and self.table.mapped is None:
            self._attach()
        return self.table.get(slot)

    def sane_entries(self, max_value: int) -> int:
        """How many leading entries make sense for a log whose values end at `max_value`."""
        if self.table.stored and self.table.mapped is None:
            self._attach()
        return self.table.sane_entries(max_value)


class OffsetIndex(IndexFile):
    """Offset of a batch's last record -> position of the batch."""

    __slots__ = ("table",)

    table: OffsetTable

    if TYPE_CHECKING:

        def _get(self, slot: int) -> tuple[Offset, Position]: ...

    def __init__(
        self, files: FileSystem, open_files: HolderQueue, path: str, base_offset: Offset, max_bytes: int
    ) -> None:
        super().__init__(files, open_files, path, base_offset, max_bytes, OFFSET_ENTRY_BYTES)
        stored, last = self._stored_entries()
        self.table = OffsetTable(base_offset, stored)
        if last:
            relative, position = int.from_bytes(last[:4]), int.from_bytes(last[4:])
            self.table.set_last(base_offset + relative, position)

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll for want of entries."""
        return self.table.entries >= self.max_entries

    def append(self, offset: Offset, position: Position) -> None:
        """Add an entry; entries reach the file in groups.  OSError."""
        if self.table.append(offset, position) >= TAIL_ENTRIES:
            self.write_tail()

    def position_for(self, offset: Offset) -> Position:
        """Where to start scanning for `offset`."""
        position = self.table.position_for(offset)
        if position == NEEDS_MAP:
            self._attach()
            position = self.table.position_for(offset)
        self.recently_used = True
        return position

    def last_position(self, log_fd: int, log_bytes: int) -> Position | None:
        """The position of the last entry's batch; None when no batch of that entry begins there."""
        table = self.table
        position = table.last_value
        if table.entries == 0:
            return position
        if not 0 <= position < log_bytes:
            return None
        header = self._files.pread(log_fd, min(BATCH_OVERHEAD, log_bytes - position), position)
        try:
            _, size, first, last = find_batch(header, ANY_OFFSET, position, log_bytes)
        except ValueError:
            return None
        # Kafka up to 3.9 wrote one entry for several batches: the position of the first and the last offset of the
        # last.
        return position if size and self.base_offset <= first <= last <= table.last_key else None

    def entry_before(self, offset: Offset) -> tuple[Offset, Position] | None:
        """The last entry (offset, position) below `offset`."""
        slot = self._slot_for(offset - 1)
        return None if slot == NO_SLOT else self._get(slot)

    def upper_bound(self, position: Position) -> tuple[Offset, Position] | None:
        """The first entry (offset, position) whose batch starts at or after `position`."""
        return next(self.entries_behind(position - 1), None)

    def entries_behind(self, position: Position) -> Iterator[tuple[Offset, Position]]:
        """The entries (offset, position) of batches behind `position`, in their order."""
        slot = self.table.upper_slot_for_value(position + 1)
        if slot == NEEDS_MAP:
            self._attach()
            slot = self.table.upper_slot_for_value(position + 1)
        if slot != NO_SLOT:
            for at in range(slot, self.table.entries):
                yield self._get(at)

    def floor(self, position: Position) -> tuple[Offset, Position] | None:
        """The last entry (offset, position) of a batch at or before `position`."""
        behind = self.upper_bound(position + 1)
        return self.entry_before(behind[0] if behind is not None else self.table.last_key + 1)

    def entries_down_from(self, offset: Offset, most: int) -> Iterator[tuple[Offset, Position]]:
        """The last entries (offset, position) up to `offset`, at most so many, the last one first."""
        slot = self._slot_for(offset)
        for at in range(slot, max(-1, slot - most), -1):
            yield self._get(at)

    def truncate_to(self, offset: Offset) -> None:
        """Drops entries for `offset` and later."""
        self.keep(self._slot_for(offset - 1) + 1)


class TimeIndex(IndexFile):
    """Largest timestamp so far -> offset up to which it holds."""

    __slots__ = ("table",)

    table: TimeTable

    if TYPE_CHECKING:

        def _get(self, slot: int) -> tuple[int, Offset]: ...

    def __init__(
        self, files: FileSystem, open_files: HolderQueue, path: str, base_offset: Offset, max_bytes: int
    ) -> None:
        super().__init__(files, open_files, path, base_offset, max_bytes, TIME_ENTRY_BYTES)
        stored, last = self._stored_entries()
        self.table = TimeTable(base_offset, stored)
        if last:
            timestamp = int.from_bytes(last[:8], signed=True)
            self.table.set_last(timestamp, base_offset + int.from_bytes(last[8:]))

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll: the last entry is kept for its close."""
        return self.table.entries >= self.max_entries - 1

    def append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry; entries reach the file in groups.  OSError."""
        if self.table.append(timestamp, offset) >= TAIL_ENTRIES:
            self.write_tail()

    def last_entry(self) -> tuple[int, Offset]:
        """(timestamp, offset) of the last entry; (-1, base offset) without one."""
        if self.table.entries == 0:
            return -1, self.base_offset
        return self.table.last_key, self.table.last_value

    def entry_for(self, timestamp: int) -> tuple[int, Offset] | None:
        """(timestamp, offset) of the last entry that is not later; None when all are."""
        slot = self._slot_for(timestamp)
        return None if slot == NO_SLOT else self._get(slot)

    def truncate_to(self, offset: Offset) -> None:
        """Drops entries for `offset` and later."""
        table = self.table
        if table.stored and table.mapped is None:
            self._attach()
        slot = table.upper_slot_for_value(offset)
        if slot != NO_SLOT:
            self.keep(slot)
