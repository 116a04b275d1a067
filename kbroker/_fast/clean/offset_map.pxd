"""The table behind `OffsetMap`, inline for the loops of compaction."""

from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.base.cursor cimport kb_load32
from kbroker._fast.base.md5 cimport DIGEST_BYTES


cdef extern from *:
    """
    #define kb_prefetch(address) __builtin_prefetch((address), 1, 3)
    """
    void kb_prefetch(const void*) noexcept nogil


cdef enum:
    SLOT_BYTES = 24
    ABSENT = -1


cdef struct Table:
    uint8_t* data        # NULL until the first key
    int64_t slots
    int64_t entries
    int64_t limit        # entries at which it must grow, or is full


cdef inline int64_t slot_for(const Table* self, const uint8_t* digest, int64_t attempt) noexcept nogil:
    """Kafka's probing: the digest's int32s at byte 0, 1, 2 … 12, then one slot after the other."""
    cdef uint32_t raw
    cdef int32_t probe
    if attempt <= DIGEST_BYTES - 4:
        raw = kb_load32(digest + attempt)
    else:
        raw = kb_load32(digest + DIGEST_BYTES - 4) + <uint32_t>(attempt - (DIGEST_BYTES - 4))
    probe = <int32_t>raw
    if probe < 0:
        probe = 0 if probe == INT32_MIN else -probe
    return <int64_t>(<uint32_t>probe % <uint32_t>self.slots)


cdef inline bint is_empty(const uint8_t* slot) noexcept nogil:
    cdef uint64_t parts[3]
    memcpy(parts, slot, SLOT_BYTES)
    return (parts[0] | parts[1] | parts[2]) == 0


cdef inline void prefetch_slot(const uint8_t* slot) noexcept nogil:
    """Both lines of a slot that lies across two."""
    kb_prefetch(slot)
    kb_prefetch(slot + SLOT_BYTES - 1)


cdef inline bint holds(const uint8_t* slot, const uint8_t* digest) noexcept nogil:
    cdef uint64_t held[2]
    cdef uint64_t wanted[2]
    memcpy(held, slot, DIGEST_BYTES)
    memcpy(wanted, digest, DIGEST_BYTES)
    return ((held[0] ^ wanted[0]) | (held[1] ^ wanted[1])) == 0


cdef inline uint32_t table_prefetch(const Table* self, const uint8_t* digest) noexcept nogil:
    """Asks for the memory of the first probe, and says which slot it is."""
    cdef int64_t at = slot_for(self, digest, 0)
    prefetch_slot(self.data + at * SLOT_BYTES)
    return <uint32_t>at


cdef inline void table_prefetch_next(const Table* self, const uint8_t* digest, uint32_t first) noexcept nogil:
    """Asks for the second probe, where the first, whose memory should be there by now, leads nowhere."""
    cdef const uint8_t* slot = self.data + <int64_t>first * SLOT_BYTES
    if not holds(slot, digest) and not is_empty(slot):
        prefetch_slot(self.data + slot_for(self, digest, 1) * SLOT_BYTES)


cdef inline uint8_t* table_slot_from(const Table* self, const uint8_t* digest, uint32_t first) noexcept nogil:
    """`table_slot`, the slot of the first probe being known."""
    cdef int64_t attempt = 0
    cdef uint8_t* slot = self.data + <int64_t>first * SLOT_BYTES
    while not holds(slot, digest) and not is_empty(slot):
        attempt += 1
        slot = self.data + slot_for(self, digest, attempt) * SLOT_BYTES
    return slot


cdef inline uint8_t* table_slot(const Table* self, const uint8_t* digest) noexcept nogil:
    """The slot that holds the digest, or the empty one where it belongs; one is empty always."""
    return table_slot_from(self, digest, <uint32_t>slot_for(self, digest, 0))


cdef inline int64_t table_find(const Table* self, const uint8_t* digest) noexcept nogil:
    """The offset stored for a digest, ABSENT when there is none."""
    cdef uint8_t* slot
    cdef int64_t offset
    if self.entries == 0:
        return ABSENT
    slot = table_slot(self, digest)
    if is_empty(slot):
        return ABSENT
    memcpy(&offset, slot + DIGEST_BYTES, 8)
    return offset


cdef inline void table_store(Table* self, const uint8_t* digest, uint8_t* slot, int64_t offset) noexcept nogil:
    """Puts a key into the slot that was found for it."""
    if is_empty(slot):
        self.entries += 1
        memcpy(slot, digest, DIGEST_BYTES)
    memcpy(slot + DIGEST_BYTES, &offset, 8)


cdef inline int64_t slot_offset(const uint8_t* slot) noexcept nogil:
    cdef int64_t offset
    memcpy(&offset, slot + DIGEST_BYTES, 8)
    return ABSENT if is_empty(slot) else offset


cdef class OffsetMap:
    cdef Table table
    cdef readonly int64_t max_slots
    cdef readonly double load_factor
    cdef public int64_t latest_offset
    cdef int64_t max_entries
    cdef int put(self, const uint8_t* digest, int64_t offset) noexcept nogil
    cdef int grow(self, int64_t slots) noexcept nogil
