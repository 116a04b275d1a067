"""What became of records, counted without the GIL by second, topic and partition.

A cell has counts (`COUNT_NAMES`) and two histograms of microseconds, with the buckets of the replay's outcomes: below
64 each microsecond has its own, above, each power of two is cut into 32.  Most cells see few of the 1,900 buckets, so a
histogram is a small table that grows, and so is the table of cells.  Functions return NULL where memory cannot be had.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

cdef extern from *:
    """
    #define kb_bits(number) (64 - __builtin_clzll(number))
    """
    int kb_bits(uint64_t number) noexcept nogil

COUNT_NAMES = ("offered", "sent", "acknowledged", "late", "bytes", "queue_full_us")


cdef inline int32_t bucket_of(int64_t microseconds) noexcept nogil:
    cdef int shift
    if microseconds < 64:
        return <int32_t>max(microseconds, 0)
    shift = kb_bits(<uint64_t>microseconds) - 6
    return (shift << 5) + <int32_t>(microseconds >> shift)


cdef inline Bucket* bucket_place(Bucket* buckets, int32_t capacity, int32_t number) noexcept nogil:
    """The place of a bucket, or the free one where it would be added; the table is never full."""
    cdef uint32_t place = (<uint32_t>number * <uint32_t>0x9E3779B1) & <uint32_t>(capacity - 1)
    while buckets[place].number != number and buckets[place].number >= 0:
        place = (place + 1) & <uint32_t>(capacity - 1)
    return &buckets[place]


cdef bint histogram_grow(Histogram* self) noexcept nogil:
    cdef int32_t capacity = max(self.capacity * 2, 8)
    cdef Bucket* grown = <Bucket*>malloc(<size_t>capacity * sizeof(Bucket))
    cdef int32_t at
    if grown == NULL:
        return False
    for at in range(capacity):
        grown[at].number = -1
        grown[at].count = 0
    for at in range(self.capacity):
        if self.buckets[at].number >= 0:
            bucket_place(grown, capacity, self.buckets[at].number)[0] = self.buckets[at]
    free(self.buckets)
    self.buckets = grown
    self.capacity = capacity
    return True


cdef bint histogram_add(Histogram* self, int64_t microseconds) noexcept nogil:
    """Counts a time; False when there is no memory."""
    cdef Bucket* bucket
    # Three quarters full at most.
    if self.used * 4 >= self.capacity * 3 and not histogram_grow(self):
        return False
    bucket = bucket_place(self.buckets, self.capacity, bucket_of(microseconds))
    if bucket.number < 0:
        bucket.number = bucket_of(microseconds)
        self.used += 1
    bucket.count += 1
    return True


cdef inline Py_ssize_t cell_place(const Cells* self, int32_t second, int32_t topic, int32_t partition) noexcept nogil:
    cdef uint64_t mixed = <uint64_t>second * <uint64_t>0x9E3779B97F4A7C15
    cdef uint64_t mask = <uint64_t>(self.place_count - 1)
    cdef uint64_t place
    cdef const Cell* cell
    mixed = (mixed ^ <uint64_t><uint32_t>topic) * <uint64_t>0xBF58476D1CE4E5B9
    mixed = (mixed ^ <uint64_t><uint32_t>partition) * <uint64_t>0x94D049BB133111EB
    place = (mixed >> 32) & mask
    while self.places[place] >= 0:
        cell = &self.cells[self.places[place]]
        if cell.second == second and cell.topic == topic and cell.partition == partition:
            break
        place = (place + 1) & mask
    return <Py_ssize_t>place


cdef bint cells_grow(Cells* self) noexcept nogil:
    cdef Py_ssize_t capacity = max(self.capacity * 2, 16)
    cdef Cell* cells = <Cell*>realloc(self.cells, <size_t>capacity * sizeof(Cell))
    cdef int32_t* places
    cdef Py_ssize_t at
    if cells == NULL:
        return False
    self.cells = cells
    places = <int32_t*>malloc(<size_t>capacity * 2 * sizeof(int32_t))
    if places == NULL:
        return False
    free(self.places)
    self.places = places
    self.capacity = capacity
    self.place_count = capacity * 2
    memset(places, 0xFF, <size_t>self.place_count * sizeof(int32_t))
    for at in range(self.used):
        places[cell_place(self, cells[at].second, cells[at].topic, cells[at].partition)] = <int32_t>at
    return True


cdef Cell* cells_at(Cells* self, int32_t second, int32_t topic, int32_t partition, Py_ssize_t* hint) noexcept nogil:
    """The cell, which is made if need be; good until the next call.  `hint`: the number of the caller's last one."""
    cdef Cell* cell
    cdef Py_ssize_t place
    if hint[0] < self.used:
        cell = &self.cells[hint[0]]
        if cell.second == second and cell.partition == partition and cell.topic == topic:
            return cell
    if self.used == self.capacity and not cells_grow(self):
        return NULL
    place = cell_place(self, second, topic, partition)
    if self.places[place] < 0:
        self.places[place] = <int32_t>self.used
        cell = &self.cells[self.used]
        memset(cell, 0, sizeof(Cell))
        cell.second, cell.topic, cell.partition = second, topic, partition
        self.used += 1
    hint[0] = self.places[place]
    return &self.cells[hint[0]]


cdef list histogram_items(const Histogram* self):
    cdef int32_t at
    cdef list items = []
    for at in range(self.capacity):
        if self.buckets[at].number >= 0:
            items.append((self.buckets[at].number, self.buckets[at].count))
    return items


cdef list cells_take(Cells* self):
    """(second, topic, partition, counts, sent_error, latency) of each cell; none are left."""
    cdef list taken = []
    cdef Cell* cell
    cdef Py_ssize_t at
    cdef int which
    for at in range(self.used):
        cell = &self.cells[at]
        counts = tuple([cell.counts[which] for which in range(COUNTS)])
        taken.append((
            cell.second, cell.topic, cell.partition, counts,
            histogram_items(&cell.sent_error), histogram_items(&cell.latency),
        ))
    cells_free(self)
    return taken


cdef void cells_free(Cells* self) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(self.used):
        free(self.cells[at].sent_error.buckets)
        free(self.cells[at].latency.buckets)
    free(self.cells)
    free(self.places)
    memset(self, 0, sizeof(Cells))


cdef class DeliveryCells:
    """Cells for Python, which counts one record at a time: offered, sent and acknowledged in one second."""

    def __dealloc__(self):
        cells_free(&self.cells)

    def add(self, int32_t second, int32_t topic, int32_t partition, int64_t sent_us, int64_t latency_us):
        cdef Py_ssize_t hint = 0
        cdef Cell* cell = cells_at(&self.cells, second, topic, partition, &hint)
        if cell == NULL or not histogram_add(&cell.sent_error, sent_us):
            raise MemoryError
        if not histogram_add(&cell.latency, latency_us):
            raise MemoryError
        cell.counts[OFFERED] += 1
        cell.counts[SENT] += 1
        cell.counts[ACKNOWLEDGED] += 1

    def take(self):
        return cells_take(&self.cells)
