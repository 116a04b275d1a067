"""Sparse index entries: tables with binary search, and what an active segment knows about its last batches.

Layouts (big endian), Kafka's:

    offset index entry   8 bytes: relative offset int32 | position int32
    time index entry    12 bytes: timestamp int64 | relative offset int32

A table's entries `[0, stored)` lie in the index file and are read through a map that the owner gives with `attach`;
entries `[stored, entries)` are in memory until the owner writes them (`tail_bytes`, then `mark_stored`).  A lookup
that needs the file while no map is attached answers `NEEDS_MAP`, so that segments which are not read have
no maps.

Searches try the last 8192 bytes first (KAFKA-6432's warm section): readers near the end never touch cold pages.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void*, size_t, int, int, int, long)
    int c_munmap "munmap"(void*, size_t)
    int PROT_READ
    int MAP_SHARED
    void* MAP_FAILED

NEEDS_MAP = -2
NO_SLOT = -1
WARM_BYTES = 8192
TAIL_ENTRIES = 512

cdef Py_ssize_t C_WARM_BYTES = 8192
cdef Py_ssize_t FIRST_CAPACITY = 16
cdef int64_t MAX_INT32 = 0x7FFFFFFF


cdef inline void store32(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline void store64(uint8_t* at, int64_t value) noexcept nogil:
    store32(at, <uint32_t>(<uint64_t>value >> 32))
    store32(at + 4, <uint32_t>value)


cdef class MappedFile:
    """The head of a file as shared read-only memory, unmapped when the last reference goes."""

    def __cinit__(self, int fd, Py_ssize_t size):
        cdef void* data
        self.data = NULL
        self.size = 0
        if size <= 0:
            raise ValueError(f"cannot map {size} bytes")
        data = c_mmap(NULL, <size_t>size, PROT_READ, MAP_SHARED, fd, 0)
        if data == MAP_FAILED:
            raise OSError(errno, "mmap failed")
        self.data = <const uint8_t*>data
        self.size = size

    def __dealloc__(self):
        if self.data != NULL:
            c_munmap(<void*>self.data, <size_t>self.size)


cdef class IndexTable:
    """What both tables share.  Not for use on its own."""

    def __cinit__(self, int64_t base_offset, Py_ssize_t stored=0, *args):
        self.base_offset = base_offset
        self.stored = stored
        self.entries = stored
        self.tail = NULL
        self.tail_capacity = 0
        self.last_key = -1
        self.last_value = 0

    def __dealloc__(self):
        free(self.tail)

    cdef const uint8_t* entry(self, Py_ssize_t slot) noexcept nogil:
        if slot < self.stored:
            return self.mapped.data + slot * self.entry_size
        return self.tail + (slot - self.stored) * self.entry_size

    cdef uint8_t* next_slot(self) except NULL:
        cdef Py_ssize_t used = self.entries - self.stored
        cdef Py_ssize_t capacity
        cdef void* grown
        if used == self.tail_capacity:
            capacity = self.tail_capacity * 2 if self.tail_capacity else FIRST_CAPACITY
            grown = realloc(self.tail, <size_t>(capacity * self.entry_size))
            if grown == NULL:
                raise MemoryError()
            self.tail = <uint8_t*>grown
            self.tail_capacity = capacity
        return self.tail + used * self.entry_size

    cdef int64_t key_at(self, Py_ssize_t slot) noexcept nogil:
        return 0

    cdef int64_t value_at(self, Py_ssize_t slot) noexcept nogil:
        return 0

    cdef Py_ssize_t bisect(self, int64_t target, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
        """The last slot in [low, high] whose key is <= target, given that key(low) is."""
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high + 1) >> 1
            if self.key_at(middle) <= target:
                low = middle
            else:
                high = middle - 1
        return low

    cdef bint readable(self, int64_t target) noexcept nogil:
        """Whether a search for `target` stays in memory that is there."""
        if self.stored == 0:
            return True
        if self.entries > self.stored and self.key_at(self.stored) <= target:
            return True
        return self.mapped is not None

    cdef Py_ssize_t search(self, int64_t target) noexcept nogil:
        """The last slot whose key is <= target, or -1.  Call only when `readable(target)`."""
        cdef Py_ssize_t last = self.entries - 1
        cdef Py_ssize_t warm
        if last < 0:
            return -1
        if self.entries > self.stored and self.key_at(self.stored) <= target:
            return self.bisect(target, self.stored, last)
        warm = last - C_WARM_BYTES // self.entry_size
        if warm < 0:
            warm = 0
        if self.key_at(warm) <= target:
            return self.bisect(target, warm, last)
        if warm == 0 or self.key_at(0) > target:
            return -1
        return self.bisect(target, 0, warm)

    def slot_for(self, int64_t target):
        """The last slot with a key <= `target` (absolute); NO_SLOT before the first; NEEDS_MAP."""
        if not self.readable(target):
            return -2
        return self.search(target)

    def upper_slot_for_value(self, int64_t value):
        """The first slot whose value is >= `value` (NO_SLOT when none); NEEDS_MAP."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.entries
        cdef Py_ssize_t middle
        if self.stored and self.mapped is None:
            return -2
        while low < high:
            middle = (low + high) >> 1
            if self.value_at(middle) < value:
                low = middle + 1
            else:
                high = middle
        return low if low < self.entries else -1

    def get(self, Py_ssize_t slot):
        """(key, value) of a slot."""
        if slot < 0 or slot >= self.entries:
            raise IndexError(f"slot {slot} of an index of {self.entries} entries")
        if slot < self.stored and self.mapped is None:
            raise LookupError("the index file is not mapped")
        return self.key_at(slot), self.value_at(slot)

    def attach(self, MappedFile mapped):
        """Gives the map of the file; None takes it away."""
        if mapped is not None and mapped.size < self.stored * self.entry_size:
            raise ValueError("the map is smaller than the stored entries")
        self.mapped = mapped

    def set_last(self, int64_t key, int64_t value):
        """Tells the last entry of a table that starts with stored entries."""
        self.last_key = key
        self.last_value = value

    def tail_bytes(self):
        """The entries that are in memory alone, as they belong into the file from `stored` on."""
        return PyBytes_FromStringAndSize(<char*>self.tail, (self.entries - self.stored) * self.entry_size)

    def mark_stored(self):
        """The tail is in the file now."""
        self.stored = self.entries
        if self.mapped is not None and self.mapped.size < self.stored * self.entry_size:
            self.mapped = None

    def truncate(self, Py_ssize_t entries):
        """Keeps the first `entries`.  Stored entries before the cut must be mapped, to know the new last one."""
        if entries < 0 or entries > self.entries:
            raise ValueError(f"cannot keep {entries} of {self.entries} entries")
        if entries and entries <= self.stored and self.mapped is None:
            raise LookupError("the index file is not mapped")
        if entries < self.stored:
            self.stored = entries
        self.entries = entries
        if entries:
            self.last_key = self.key_at(entries - 1)
            self.last_value = self.value_at(entries - 1)
        else:
            self.last_key = -1
            self.last_value = 0

    def sane_entries(self, int64_t max_value):
        """How many leading entries ascend in key and never descend in value, with no value over `max_value`."""
        cdef Py_ssize_t slot
        cdef int64_t key = -1
        cdef int64_t value = -1
        cdef int64_t next_key, next_value
        if self.stored and self.mapped is None:
            raise LookupError("the index file is not mapped")
        for slot in range(self.entries):
            next_key = self.key_at(slot)
            next_value = self.value_at(slot)
            if next_key < self.base_offset * (self.entry_size == 8) or (slot and next_key <= key):
                return slot
            if next_value < value or next_value > max_value:
                return slot
            key = next_key
            value = next_value
        return self.entries


cdef class OffsetTable(IndexTable):
    """Entries offset -> position of the batch that ends at that offset."""

    def __cinit__(self, *args):
        self.entry_size = 8

    cdef int64_t key_at(self, Py_ssize_t slot) noexcept nogil:
        return self.base_offset + <int32_t>load32(self.entry(slot))

    cdef int64_t value_at(self, Py_ssize_t slot) noexcept nogil:
        return <int32_t>load32(self.entry(slot) + 4)

    def append(self, int64_t offset, int64_t position):
        """Adds an entry; offsets must ascend.  Returns the number of entries that wait to be written."""
        return self.add(offset, position)

    cdef Py_ssize_t add(self, int64_t offset, int64_t position) except -1:
        cdef uint8_t* at
        cdef int64_t relative = offset - self.base_offset
        if relative < 0 or relative > MAX_INT32 or position < 0 or position > MAX_INT32:
            raise ValueError(f"offset {offset} at {position} does not fit an index that starts at {self.base_offset}")
        if self.entries and offset <= self.last_key:
            raise ValueError(f"offset {offset} after {self.last_key}: an offset index ascends")
        at = self.next_slot()
        store32(at, <uint32_t>relative)
        store32(at + 4, <uint32_t>position)
        self.entries += 1
        self.last_key = offset
        self.last_value = position
        return self.entries - self.stored

    def position_for(self, int64_t offset):
        """The position to start a forward scan for `offset` from: 0 when no entry is at or before it; NEEDS_MAP."""
        cdef Py_ssize_t slot
        if not self.readable(offset):
            return -2
        slot = self.search(offset)
        return self.value_at(slot) if slot >= 0 else 0


cdef class TimeTable(IndexTable):
    """Entries timestamp -> offset: no record up to that offset is newer than the timestamp."""

    def __cinit__(self, *args):
        self.entry_size = 12

    cdef int64_t key_at(self, Py_ssize_t slot) noexcept nogil:
        return load64(self.entry(slot))

    cdef int64_t value_at(self, Py_ssize_t slot) noexcept nogil:
        return self.base_offset + <int32_t>load32(self.entry(slot) + 8)

    def append(self, int64_t timestamp, int64_t offset):
        """Adds an entry when the timestamp is newer than the last; offsets must not descend.

        Returns the number of entries that wait to be written.
        """
        return self.add(timestamp, offset)

    cdef Py_ssize_t add(self, int64_t timestamp, int64_t offset) except -1:
        cdef uint8_t* at
        cdef int64_t relative = offset - self.base_offset
        if relative < 0 or relative > MAX_INT32:
            raise ValueError(f"offset {offset} does not fit an index that starts at {self.base_offset}")
        if self.entries:
            if offset < self.last_value:
                raise ValueError(f"offset {offset} after {self.last_value}: a time index's offsets never descend")
            if timestamp < self.last_key:
                raise ValueError(f"timestamp {timestamp} after {self.last_key}: a time index ascends")
        if timestamp > self.last_key:
            at = self.next_slot()
            store64(at, timestamp)
            store32(at + 8, <uint32_t>relative)
            self.entries += 1
            self.last_key = timestamp
            self.last_value = offset
        return self.entries - self.stored


cdef class AppendTail:
    """An active segment's counters and its last 32 batches, so that a reader at the tail needs no index."""

    def __cinit__(self, int64_t size, int64_t max_timestamp, int64_t offset_of_max_timestamp,
                  int64_t bytes_since_index, int64_t index_interval_bytes):
        self.size = size
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.bytes_since_index = bytes_since_index
        self.index_interval_bytes = index_interval_bytes
        self.next_batch = 0
        self.batches = 0

    def append(self, int64_t base_offset, int64_t last_offset, int64_t size, int64_t max_timestamp):
        """Accounts for a batch just written at the end.  True when an index entry is due, judged before counting it."""
        return self.take(base_offset, last_offset, size, max_timestamp)

    cdef bint take(self, int64_t base_offset, int64_t last_offset, int64_t size, int64_t max_timestamp) noexcept nogil:
        cdef bint due = self.bytes_since_index > self.index_interval_bytes
        cdef TailBatch* batch = &self.ring[self.next_batch]
        batch.base_offset = base_offset
        batch.last_offset = last_offset
        batch.position = self.size
        batch.size = size
        self.next_batch = (self.next_batch + 1) & 31
        if self.batches < 32:
            self.batches += 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if due:
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.size += size
        return due

    def forget_batches(self) -> None:
        """Forgets the last batches after an append of more than one batch: positions come from the index until others
        are added."""
        self.batches = 0

    def find(self, int64_t offset):
        """(position, size) of the remembered batch that holds `offset`, or None."""
        cdef const TailBatch* batch = self.batch_of(offset)
        return (batch.position, batch.size) if batch != NULL else None

    cdef const TailBatch* batch_of(self, int64_t offset) noexcept nogil:
        cdef unsigned int step
        cdef const TailBatch* batch
        for step in range(1, self.batches + 1):
            batch = &self.ring[(self.next_batch + 32 - step) & 31]
            if batch.last_offset < offset:
                return NULL
            if batch.base_offset <= offset:
                return batch
        return NULL
