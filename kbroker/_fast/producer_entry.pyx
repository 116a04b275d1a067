"""What a partition remembers of one idempotent producer, packed: epoch, transaction and the last five batches.

A plain C record of 160 bytes, because a broker may hold millions of them: Kafka's ProducerStateEntry.  Sequence
numbers wrap from 2**31 - 1 to 0.  Which sequences are right is decided in `storage/producer_state`; here they are
only kept.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

RETAINED_BATCHES = 5

cdef int64_t MAX_INT32 = 0x7FFFFFFF

cdef struct Batch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta


cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef public int64_t last_timestamp
    cdef public int64_t current_txn_first_offset
    cdef public int32_t coordinator_epoch
    cdef readonly int16_t producer_epoch
    cdef int16_t newest
    cdef readonly int16_t count
    cdef Batch batches[5]

    def __cinit__(self, int64_t producer_id, int16_t producer_epoch=-1, int32_t coordinator_epoch=-1,
                  int64_t last_timestamp=-1, int64_t current_txn_first_offset=-1):
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.newest = -1
        self.count = 0

    def __repr__(self):
        return (f"ProducerEntry({self.producer_id}, epoch={self.producer_epoch}, last_sequence={self.last_sequence}, "
                f"last_offset={self.last_offset}, txn={self.current_txn_first_offset})")

    @property
    def last_sequence(self):
        """-1 while no data batch of the current epoch is known."""
        return self.batches[self.newest].last_sequence if self.count else -1

    @property
    def last_offset(self):
        return self.batches[self.newest].last_offset if self.count else -1

    @property
    def last_offset_delta(self):
        return self.batches[self.newest].offset_delta if self.count else 0

    @property
    def next_sequence(self):
        """The only sequence that may follow; 0 after the largest and while there is none."""
        if self.count == 0 or self.batches[self.newest].last_sequence == MAX_INT32:
            return 0
        return self.batches[self.newest].last_sequence + 1

    def set_epoch(self, int16_t producer_epoch):
        """Another epoch forgets the batches of the one before.  True when it changed."""
        if producer_epoch == self.producer_epoch:
            return False
        self.producer_epoch = producer_epoch
        self.count = 0
        self.newest = -1
        return True

    def add(self, int16_t producer_epoch, int32_t last_sequence, int64_t last_offset, int32_t offset_delta,
            int64_t timestamp):
        """Notes a batch, forgetting the oldest of five."""
        cdef Batch* batch
        self.set_epoch(producer_epoch)
        self.newest = <int16_t>((self.newest + 1) % 5)
        batch = &self.batches[self.newest]
        batch.last_offset = last_offset
        batch.timestamp = timestamp
        batch.last_sequence = last_sequence
        batch.offset_delta = offset_delta
        if self.count < 5:
            self.count += 1
        self.last_timestamp = timestamp

    def find(self, int16_t producer_epoch, int32_t first_sequence, int32_t last_sequence):
        """(first offset, last offset, timestamp) of a remembered batch with exactly these sequences, or None."""
        cdef int step
        cdef int64_t first
        cdef Batch* batch
        if producer_epoch != self.producer_epoch:
            return None
        for step in range(self.count):
            batch = &self.batches[(self.newest + 5 - step) % 5]
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
        found = []
        for step in range(self.count - 1, -1, -1):
            batch = self.batches[(self.newest + 5 - step) % 5]
            found.append((batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp))
        return found
