"""The offset map of compaction: for each key, by its MD5, the offset of its last record.

    slot, 24 bytes: digest 16 | offset 8        all zeros: empty

Open addressing, Kafka's SkimpyOffsetMap: the probes are the digest's own int32s at byte 0, 1, 2 … 12, then the slots
that follow.  Two keys with one digest would be taken for one; with 128 bits that does not happen by accident.

The map has room for `memory_bytes // 24` slots and takes keys until they are filled to the load factor.  Unlike Kafka's
it takes the memory as keys come, in steps of twice: a small log needs a small map.  Below its last size it grows when
three slots of ten are taken.  While the map grows to its last size, the table of the size before (less than half of it)
is in memory as well.  There are no deletions; `clear` gives the memory back.

`latest_offset` is the offset up to which the log is in the map, -1 for an empty one.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kbroker._fast.base.md5 cimport md5_digest

cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void*, size_t, int, int, int, long)
    int c_munmap "munmap"(void*, size_t)
    int c_madvise "madvise"(void*, size_t, int)
    int PROT_READ
    int PROT_WRITE
    int MAP_PRIVATE
    int MAP_ANONYMOUS
    int MADV_HUGEPAGE
    void* MAP_FAILED


cdef enum:
    FIRST_SLOTS = 4096
    GROWTH = 2
    HUGE_FROM_BYTES = 4194304
    LOOK_AHEAD = 16
    # An int32 picks the slot.
    MOST_SLOTS = 0x7FFFFFFF

# Most searches end at the first probe then; every other one is a miss of all caches.
cdef double GROW_AT = 0.3

PUT_DONE = 1
PUT_FULL = 0
PUT_NO_MEMORY = -1


cdef uint8_t* take_memory(int64_t slots) noexcept nogil:
    """Zeroed memory for a table; NULL when there is none."""
    cdef size_t size = <size_t>slots * SLOT_BYTES
    cdef void* data = c_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if data == MAP_FAILED:
        return NULL
    if size >= HUGE_FROM_BYTES:
        c_madvise(data, size, MADV_HUGEPAGE)
    return <uint8_t*>data


cdef void give_back(Table* table) noexcept nogil:
    if table.data != NULL:
        c_munmap(table.data, <size_t>table.slots * SLOT_BYTES)
        table.data = NULL
    table.slots = 0
    table.entries = 0
    table.limit = 0


cdef void move_entries(const Table* old, Table* new) noexcept nogil:
    cdef int64_t at
    cdef const uint8_t* slot
    cdef const uint8_t* ahead
    for at in range(old.slots):
        if at + LOOK_AHEAD < old.slots:
            ahead = old.data + (at + LOOK_AHEAD) * SLOT_BYTES
            if not is_empty(ahead):
                table_prefetch(new, ahead)
        slot = old.data + at * SLOT_BYTES
        if not is_empty(slot):
            memcpy(table_slot(new, slot), slot, SLOT_BYTES)
    new.entries = old.entries


cdef class OffsetMap:
    """See the module.  One thread at a time."""

    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9):
        self.table.data = NULL
        self.table.slots = 0
        self.table.entries = 0
        self.table.limit = 0
        if not 0 < load_factor <= 1:
            raise ValueError(f"a load factor of {load_factor} is not between 0 and 1")
        self.max_slots = min(memory_bytes // SLOT_BYTES, <int64_t>MOST_SLOTS)
        self.load_factor = load_factor
        # One slot stays empty, which ends every search.
        self.max_entries = min(<int64_t>(<double>self.max_slots * load_factor), self.max_slots - 1)
        if self.max_entries < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for an offset map")
        self.latest_offset = ABSENT

    def __dealloc__(self):
        give_back(&self.table)

    cdef int grow(self, int64_t slots) noexcept nogil:
        """Makes the table one of `slots`; 0 when there is no memory for it."""
        cdef Table larger
        larger.data = take_memory(slots)
        if larger.data == NULL:
            return 0
        larger.slots = slots
        larger.entries = 0
        larger.limit = self.max_entries if slots == self.max_slots else <int64_t>(<double>slots * GROW_AT)
        if self.table.entries:
            move_entries(&self.table, &larger)
        give_back(&self.table)
        self.table = larger
        return 1

    cdef int put(self, const uint8_t* digest, int64_t offset) noexcept nogil:
        """1: stored; 0: there is no room for another key; -1: no memory."""
        cdef int64_t slots
        if self.table.entries >= self.table.limit:
            if self.table.slots == self.max_slots:
                return 0
            slots = self.table.slots * GROWTH if self.table.slots else FIRST_SLOTS
            # The last step is taken from less than a half, so that both together stay near the limit.
            if slots * GROWTH > self.max_slots:
                slots = self.max_slots
            if not self.grow(min(slots, self.max_slots)):
                return -1
        table_store(&self.table, digest, table_slot(&self.table, digest), offset)
        return 1

    def add(self, key, int64_t offset):
        """Stores the offset of a key; False when the map is full (even for a key that it knows, as in Kafka)."""
        cdef Py_buffer view
        cdef uint8_t digest[16]
        cdef int done
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        md5_digest(<const uint8_t*>view.buf, view.len, &digest[0])
        PyBuffer_Release(&view)
        done = self.put(digest, offset)
        if done < 0:
            raise MemoryError
        if done and offset > self.latest_offset:
            self.latest_offset = offset
        return done == 1

    def get(self, key):
        """The offset of a key, -1 when the map has none."""
        cdef Py_buffer view
        cdef uint8_t digest[16]
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        md5_digest(<const uint8_t*>view.buf, view.len, &digest[0])
        PyBuffer_Release(&view)
        return table_find(&self.table, digest)

    def clear(self):
        """Forgets all keys and gives the memory back."""
        give_back(&self.table)
        self.latest_offset = ABSENT

    def __len__(self):
        return self.table.entries

    @property
    def capacity(self):
        """How many keys it takes."""
        return self.max_entries

    @property
    def memory_bytes(self):
        """What it holds now."""
        return self.table.slots * SLOT_BYTES
