"""What a partition remembers of one idempotent producer, packed: epoch, transaction and the last five batches.

A plain C record of 160 bytes, because a broker may hold millions of them: Kafka's ProducerStateEntry.  A partition
keeps the records in a `producer_table`; a ProducerEntry is one record taken out or about to be put in.  Sequence
numbers wrap from 2**31 - 1 to 0.  Which sequences are right is decided in `storage/log/producer_state`; here they are
only kept.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

RETAINED_BATCHES = RETAINED

cdef int64_t MAX_INT32 = 0x7FFFFFFF


cdef void producer_init(Producer* self, int64_t producer_id) noexcept nogil:
    self.producer_id = producer_id
    self.producer_epoch = -1
    self.coordinator_epoch = -1
    self.last_timestamp = -1
    self.current_txn_first_offset = -1
    self.newest = -1
    self.count = 0
    self.older = -1
    self.newer = -1


cdef bint producer_set_epoch(Producer* self, int16_t producer_epoch) noexcept nogil:
    """Another epoch forgets the batches of the one before.  True when it changed."""
    if producer_epoch == self.producer_epoch:
        return False
    self.producer_epoch = producer_epoch
    self.count = 0
    self.newest = -1
    return True


cdef void producer_add(
    Producer* self,
    int16_t producer_epoch,
    int32_t last_sequence,
    int64_t last_offset,
    int32_t offset_delta,
    int64_t timestamp,
) noexcept nogil:
    """Notes a batch, forgetting the oldest of five."""
    cdef Batch* batch
    producer_set_epoch(self, producer_epoch)
    self.newest = <int8_t>((self.newest + 1) % RETAINED)
    batch = &self.batches[self.newest]
    batch.last_offset = last_offset
    batch.timestamp = timestamp
    batch.last_sequence = last_sequence
    batch.offset_delta = offset_delta
    if self.count < RETAINED:
        self.count += 1
    self.last_timestamp = timestamp


cdef int64_t producer_next_sequence(const Producer* self) noexcept nogil:
    """The only sequence that may follow; 0 after the largest and while there is none."""
    if self.count == 0 or self.batches[self.newest].last_sequence == MAX_INT32:
        return 0
    return <int64_t>self.batches[self.newest].last_sequence + 1


cdef class ProducerEntry:
    def __cinit__(self, int64_t producer_id, int16_t producer_epoch=-1, int32_t coordinator_epoch=-1,
                  int64_t last_timestamp=-1, int64_t current_txn_first_offset=-1):
        producer_init(&self.state, producer_id)
        self.state.producer_epoch = producer_epoch
        self.state.coordinator_epoch = coordinator_epoch
        self.state.last_timestamp = last_timestamp
        self.state.current_txn_first_offset = current_txn_first_offset

    def __repr__(self):
        return (f"ProducerEntry({self.producer_id}, epoch={self.producer_epoch}, last_sequence={self.last_sequence}, "
                f"last_offset={self.last_offset}, txn={self.current_txn_first_offset})")

    @property
    def producer_id(self):
        return self.state.producer_id

    @property
    def producer_epoch(self):
        return self.state.producer_epoch

    @property
    def coordinator_epoch(self):
        return self.state.coordinator_epoch

    @property
    def last_timestamp(self):
        return self.state.last_timestamp

    @property
    def current_txn_first_offset(self):
        """-1 while no transaction is open."""
        return self.state.current_txn_first_offset

    @property
    def count(self):
        return self.state.count

    @property
    def last_sequence(self):
        """-1 while no data batch of the current epoch is known."""
        return self.state.batches[self.state.newest].last_sequence if self.state.count else -1

    @property
    def last_offset(self):
        return self.state.batches[self.state.newest].last_offset if self.state.count else -1

    @property
    def last_offset_delta(self):
        return self.state.batches[self.state.newest].offset_delta if self.state.count else 0

    @property
    def next_sequence(self):
        """The only sequence that may follow; 0 after the largest and while there is none."""
        return producer_next_sequence(&self.state)

    def set_epoch(self, int16_t producer_epoch):
        """Another epoch forgets the batches of the one before.  True when it changed."""
        return producer_set_epoch(&self.state, producer_epoch)

    def add(self, int16_t producer_epoch, int32_t last_sequence, int64_t last_offset, int32_t offset_delta,
            int64_t timestamp):
        """Notes a batch, forgetting the oldest of five."""
        producer_add(&self.state, producer_epoch, last_sequence, last_offset, offset_delta, timestamp)

    def find(self, int16_t producer_epoch, int32_t first_sequence, int32_t last_sequence):
        """(first offset, last offset, timestamp) of a remembered batch with exactly these sequences, or None."""
        cdef int step
        cdef int64_t first
        cdef const Batch* batch
        if producer_epoch != self.state.producer_epoch:
            return None
        for step in range(self.state.count):
            batch = &self.state.batches[(self.state.newest + RETAINED - step) % RETAINED]
            if batch.last_sequence != last_sequence:
                continue
            first = <int64_t>batch.last_sequence - batch.offset_delta
            if first < 0:
                first += MAX_INT32 + 1
            if first == first_sequence:
                return batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp
        return None

    def remembered(self):
        """(last sequence, last offset, offset delta, timestamp) of the remembered batches, oldest first."""
        cdef int step
        cdef Batch batch
        found = []
        for step in range(self.state.count - 1, -1, -1):
            batch = self.state.batches[(self.state.newest + RETAINED - step) % RETAINED]
            found.append((batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp))
        return found
