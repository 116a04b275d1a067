"""The idempotent producers of one partition by id: records of 160 bytes in slabs, an index, and the order of use.

    slabs    64 records each, filled without holes: the last record takes the place of one that goes
    index    slots by the hash of the id, open addressing with linear probing, at most two thirds full
    order    the records linked from the one least recently used to the newest

A producer takes 160 bytes and 6 to 12 of the index.  All tables of a broker share a ProducerBudget.  Once it is used
up, a table with more than `LEAST_KEPT` producers that takes a new one forgets its least recently used producer without
an open transaction.  So a partition that is flooded with producers forgets its own.
"""

from cython cimport no_gc_clear
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.layout cimport CONTROL_MASK, TRANSACTIONAL_MASK
from kbroker._fast.log.producer_entry cimport (
    Producer,
    ProducerEntry,
    producer_add,
    producer_init,
    producer_next_sequence,
    producer_set_epoch,
)

cdef enum:
    SLAB_SHIFT = 6
    SLAB = 64
    LEAST_SLOTS = 4
    NOWHERE = -1

# Producers that a partition keeps however many others there are.
LEAST_KEPT = 16


cdef int32_t last_sequence_of(const Header* header) noexcept nogil:
    cdef int64_t last = <int64_t>header.base_sequence + header.last_offset_delta
    if header.base_sequence < 0:
        return -1
    return <int32_t>(last if last <= INT32_MAX else last - INT32_MAX - 1)


cdef class ProducerBudget:
    """How many producers all partitions of a broker remember; 0 for no limit.  Counts what was forgotten for it."""

    def __cinit__(self, int64_t limit=0):
        self.limit = limit
        self.count = 0
        self.evictions = 0
        self.on_eviction = None


# The budget is needed to the last: the table gives back there what it holds.
@no_gc_clear
cdef class ProducerTable:
    """A mapping from producer id to ProducerEntry, which are copies: changes go through the methods."""

    def __cinit__(self, ProducerBudget budget=None):
        self.budget = budget if budget is not None else ProducerBudget()
        self.oldest = self.newest = NOWHERE

    def __dealloc__(self):
        self._free()

    cdef void _free(self) noexcept:
        cdef int32_t at
        for at in range(self.slab_count):
            free(self.slabs[at])
        free(self.slabs)
        free(self.index)
        self.slabs = NULL
        self.index = NULL
        self.budget.count -= self.count
        self.slab_room = self.slab_count = self.first_room = self.slots = self.count = 0
        self.oldest = self.newest = NOWHERE

    def __len__(self):
        return self.count

    def __contains__(self, int64_t producer_id):
        return self._find(producer_id) != NULL

    def __getitem__(self, int64_t producer_id):
        entry = self.get(producer_id)
        if entry is None:
            raise KeyError(producer_id)
        return entry

    def __iter__(self):
        return iter(self.keys())

    def get(self, int64_t producer_id):
        cdef Producer* found = self._find(producer_id)
        return take_out(found) if found != NULL else None

    def keys(self):
        cdef int32_t at
        return [self._at(at).producer_id for at in range(self.count)]

    def values(self):
        cdef int32_t at
        return [take_out(self._at(at)) for at in range(self.count)]

    def put(self, ProducerEntry entry not None):
        """Takes an entry in, in place of one with its id."""
        cdef Producer* record = self._obtain(entry.state.producer_id)
        cdef int32_t older = record.older
        cdef int32_t newer = record.newer
        record[0] = entry.state
        record.older = older
        record.newer = newer

    def discard(self, int64_t producer_id):
        """Forgets a producer.  False when there is none of that id."""
        cdef int32_t slot = self._slot(producer_id)
        if slot == NOWHERE:
            return False
        self._remove(self.index[slot])
        return True

    def clear(self):
        self._free()

    # -- batches ------------------------------------------------------------------------------------------------------

    def is_next(self, BatchInfo info not None):
        """Whether a data batch plainly follows what its producer wrote before, or is the first of an unknown one.

        False leaves the judgement to the caller, as does every transactional batch outside of an open transaction.
        """
        return self.check_next(info)

    cdef bint check_next(self, BatchInfo info) noexcept:
        cdef const Header* header = &info.header
        cdef const Producer* record = self._find(header.producer_id)
        cdef bint transactional = (header.attributes & TRANSACTIONAL_MASK) != 0
        if header.attributes & CONTROL_MASK:
            return False
        if record == NULL:
            return not transactional
        return (
            record.producer_epoch == header.producer_epoch
            and record.count > 0
            and producer_next_sequence(record) == header.base_sequence
            and transactional == (record.current_txn_first_offset >= 0)
        )

    def note(self, BatchInfo info not None, int64_t base_offset, int64_t last_offset):
        """Remembers a data batch that was written.  True when it begins a transaction."""
        return self.remember(info, base_offset, last_offset)

    cdef bint remember(self, BatchInfo info, int64_t base_offset, int64_t last_offset) except -1:
        cdef const Header* header = &info.header
        cdef Producer* record = self._obtain(header.producer_id)
        producer_add(
            record,
            header.producer_epoch,
            last_sequence_of(header),
            last_offset,
            <int32_t>(last_offset - base_offset),
            header.max_timestamp,
        )
        if header.attributes & TRANSACTIONAL_MASK and record.current_txn_first_offset < 0:
            record.current_txn_first_offset = base_offset
            return True
        if CHECKED:
            self._check()
        return False

    def end_transaction(self, BatchInfo info not None, int32_t coordinator_epoch):
        """Notes a marker.  The first offset of the transaction that it ends, -1 when none was open."""
        cdef Producer* record = self._obtain(info.header.producer_id)
        cdef int64_t first = record.current_txn_first_offset
        producer_set_epoch(record, info.header.producer_epoch)
        record.coordinator_epoch = coordinator_epoch
        record.last_timestamp = info.header.max_timestamp
        record.current_txn_first_offset = -1
        return first

    def open_transaction(self, int64_t producer_id):
        """The first offset of the producer's open transaction, or -1."""
        cdef const Producer* record = self._find(producer_id)
        return record.current_txn_first_offset if record != NULL else -1

    def remove_idle(self, int64_t limit_ms):
        """Forgets those without an open transaction whose last batch has this time or an earlier one: how many."""
        cdef int32_t at = 0
        cdef int32_t before = self.count
        cdef const Producer* record
        while at < self.count:
            record = self._at(at)
            if record.last_timestamp <= limit_ms and record.current_txn_first_offset < 0:
                self._remove(at)
            else:
                at += 1
        return before - self.count

    cdef int _check(self) except -1:
        """Raises AssertionError unless slabs, index and the order of use have the same producers."""
        cdef int32_t at = self.oldest, seen = 0
        while at != NOWHERE and seen <= self.count:
            assert self.index[self._slot(self._at(at).producer_id)] == at, "a producer that its id does not lead to"
            seen += 1
            at = self._at(at).newer
        assert seen == self.count <= self.budget.count, (seen, self.count, self.budget.count)

    # -- records ------------------------------------------------------------------------------------------------------

    cdef Producer* _at(self, int32_t at) noexcept nogil:
        return &self.slabs[at >> SLAB_SHIFT][at & (SLAB - 1)]

    cdef int32_t _home(self, int64_t producer_id) noexcept nogil:
        return <int32_t>((<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 32) & (self.slots - 1)

    cdef int32_t _slot(self, int64_t producer_id) noexcept nogil:
        """The slot in the index of the record with this id, or NOWHERE."""
        cdef int32_t slot
        if self.slots == 0:
            return NOWHERE
        slot = self._home(producer_id)
        while self.index[slot] != NOWHERE:
            if self._at(self.index[slot]).producer_id == producer_id:
                return slot
            slot = (slot + 1) & (self.slots - 1)
        return NOWHERE

    cdef Producer* _find(self, int64_t producer_id) noexcept nogil:
        cdef int32_t slot
        # A partition's busiest producer is mostly the one that wrote last.
        if self.newest != NOWHERE and self._at(self.newest).producer_id == producer_id:
            return self._at(self.newest)
        slot = self._slot(producer_id)
        return self._at(self.index[slot]) if slot != NOWHERE else NULL

    cdef Producer* _obtain(self, int64_t producer_id) except NULL:
        """The record with this id, made where there is none, and now the newest used."""
        cdef int32_t slot
        cdef int32_t at
        if self.newest != NOWHERE and self._at(self.newest).producer_id == producer_id:
            return self._at(self.newest)
        slot = self._slot(producer_id)
        if slot != NOWHERE:
            at = self.index[slot]
            self._unlink(at)
        else:
            if 0 < self.budget.limit <= self.budget.count:
                self._evict()
            self._make_room()
            at = self.count
            producer_init(self._at(at), producer_id)
            self._put_index(producer_id, at)
            self.count += 1
            self.budget.count += 1
        self._link(at)
        return self._at(at)

    cdef int _evict(self) except -1:
        """Forgets the producer least recently used that has no open transaction."""
        cdef int32_t at = self.oldest
        if self.count < LEAST_KEPT:
            return 0
        while at != NOWHERE and self._at(at).current_txn_first_offset >= 0:
            at = self._at(at).newer
        if at == NOWHERE:
            return 0
        self._remove(at)
        self.budget.evictions += 1
        if self.budget.on_eviction is not None:
            self.budget.on_eviction()
        return 0

    cdef int _make_room(self) except -1:
        """For one more record, and its slot in the index."""
        cdef int32_t slab = self.count >> SLAB_SHIFT
        cdef int32_t room
        cdef void* grown
        if slab == self.slab_room:
            room = max(1, self.slab_room * 2)
            grown = realloc(self.slabs, <size_t>room * sizeof(Producer*))
            if grown == NULL:
                raise MemoryError()
            self.slabs = <Producer**>grown
            self.slab_room = room
        if slab == self.slab_count:
            # Most partitions have a few producers: the first slab begins with one record.
            room = SLAB if slab else 1
            grown = malloc(<size_t>room * sizeof(Producer))
            if grown == NULL:
                raise MemoryError()
            self.slabs[slab] = <Producer*>grown
            self.slab_count += 1
            if slab == 0:
                self.first_room = room
        elif slab == 0 and self.count == self.first_room:
            room = min(SLAB, self.first_room * 2)
            grown = realloc(self.slabs[0], <size_t>room * sizeof(Producer))
            if grown == NULL:
                raise MemoryError()
            self.slabs[0] = <Producer*>grown
            self.first_room = room
        if 3 * (<int64_t>self.count + 1) > 2 * <int64_t>self.slots:
            self._index_again(max(LEAST_SLOTS, self.slots * 2))
        return 0

    cdef int _index_again(self, int32_t slots) except -1:
        cdef int32_t at
        cdef int32_t* index = <int32_t*>malloc(<size_t>slots * sizeof(int32_t))
        if index == NULL:
            raise MemoryError()
        free(self.index)
        memset(index, 0xFF, <size_t>slots * sizeof(int32_t))
        self.index = index
        self.slots = slots
        for at in range(self.count):
            self._put_index(self._at(at).producer_id, at)
        return 0

    cdef void _put_index(self, int64_t producer_id, int32_t at) noexcept nogil:
        cdef int32_t slot = self._home(producer_id)
        while self.index[slot] != NOWHERE:
            slot = (slot + 1) & (self.slots - 1)
        self.index[slot] = at

    cdef void _remove(self, int32_t at) noexcept:
        """Forgets the record at `at`; the last one takes its slot."""
        cdef int32_t last = self.count - 1
        self._drop_index(self._slot(self._at(at).producer_id))
        self._unlink(at)
        if at != last:
            self.index[self._slot(self._at(last).producer_id)] = at
            self._at(at)[0] = self._at(last)[0]
            self._relink(at)
        self.count = last
        self.budget.count -= 1
        # One empty slab stays, so that a producer that comes and goes does not cost an allocation each time.
        if self.slab_count - 1 > (last + SLAB) >> SLAB_SHIFT:
            self.slab_count -= 1
            free(self.slabs[self.slab_count])
        if last == 0:
            self._free()

    cdef void _drop_index(self, int32_t slot) noexcept nogil:
        """Empties a slot and moves those up that had been pushed on by it."""
        cdef int32_t mask = self.slots - 1
        cdef int32_t hole = slot
        cdef int32_t home
        while True:
            slot = (slot + 1) & mask
            if self.index[slot] == NOWHERE:
                break
            home = self._home(self._at(self.index[slot]).producer_id)
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                self.index[hole] = self.index[slot]
                hole = slot
        self.index[hole] = NOWHERE

    # -- the order of use ---------------------------------------------------------------------------------------------

    cdef void _link(self, int32_t at) noexcept nogil:
        """As the newest."""
        cdef Producer* record = self._at(at)
        record.older = self.newest
        record.newer = NOWHERE
        if self.newest != NOWHERE:
            self._at(self.newest).newer = at
        else:
            self.oldest = at
        self.newest = at

    cdef void _unlink(self, int32_t at) noexcept nogil:
        cdef const Producer* record = self._at(at)
        if record.older != NOWHERE:
            self._at(record.older).newer = record.newer
        else:
            self.oldest = record.newer
        if record.newer != NOWHERE:
            self._at(record.newer).older = record.older
        else:
            self.newest = record.older

    cdef void _relink(self, int32_t at) noexcept nogil:
        """Tells the neighbours of a record that it is at `at` now."""
        cdef const Producer* record = self._at(at)
        if record.older != NOWHERE:
            self._at(record.older).newer = at
        else:
            self.oldest = at
        if record.newer != NOWHERE:
            self._at(record.newer).older = at
        else:
            self.newest = at


cdef ProducerEntry take_out(const Producer* record):
    cdef ProducerEntry entry = ProducerEntry.__new__(ProducerEntry, record.producer_id)
    entry.state = record[0]
    return entry
