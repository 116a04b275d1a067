"""Fetches of several partitions without a session, answered from their bytes.

Clients without sessions name all their partitions in each fetch, and are told of all in each answer, though few have
records: a partition takes a few fields of C and some 40 bytes, and no struct.  Whatever is out of the ordinary at one
of them leaves the whole request to the handler.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._fast.cursor cimport Cursor, cursor_init, cursor_left, cursor_uvarint
from kbroker._fast.direct cimport NAME_BYTES, put_size, put_topic, read_size, read_topic
from kbroker._fast.file_region cimport FileRegion
from kbroker._fast.growable cimport Growable, growable_free, growable_reserve, put_8
from kbroker._fast.log_fields cimport FileFields, PartitionFields, SegmentFields, led_partition
from kbroker._fast.one_partition cimport (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    LAST_VERSION,
    ROW_BYTES,
    SIZE_BYTES,
    START_BYTES,
    OnePartition,
    Stretch,
    put_row,
    put_start,
    read_head,
    read_row,
    read_tail,
)
from kbroker._fast.ordinary_fetch cimport UNKNOWN, OrdinaryFetch, confirm
from kbroker._fast.put cimport put32

cdef uint64_t fetches = 0       # that have been looked at; numbers them


cdef class ManyFetch(OrdinaryFetch):
    """What `OrdinaryFetch` does, for fetches of any number of partitions."""

    cdef object serve(self, object services, int version, int correlation_id, const uint8_t* data, Py_ssize_t size,
                      bint force):
        cdef Served served
        cdef object frame = OrdinaryFetch.serve(self, services, version, correlation_id, data, size, force)
        if frame is not None or self.of_one:
            return frame
        served = Served()
        frame = served.serve(self, services, version, correlation_id, data, size, force)
        if frame is False:
            self.found_too_little(served.asked.max_wait_ms, list(served.names), tuple(served.partitions))
        return frame


cdef class Served:
    """One look at all partitions of a fetch, and the answer as far as it is written."""

    cdef OnePartition asked
    cdef Growable out
    cdef list partitions
    cdef dict names             # of the topics, in their order
    cdef list regions           # each behind how many bytes it comes
    cdef int64_t left
    cdef int64_t total

    def __cinit__(self):
        self.partitions = []
        self.names = {}
        self.regions = []

    def __dealloc__(self):
        growable_free(&self.out)

    cdef object serve(self, OrdinaryFetch reader, object services, int version, int correlation_id,
                      const uint8_t* data, Py_ssize_t size, bint force):
        """The answer; None where the handler decides, False where there is not enough yet, unless `force`."""
        global fetches
        cdef Cursor cursor
        cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
        cdef Py_ssize_t topics
        cursor_init(&cursor, data, size)
        if not FIRST_VERSION <= version <= LAST_VERSION or not read_head(&cursor, version, &self.asked):
            return None
        self.left = min(<int64_t> self.asked.max_bytes, <int64_t> services.fetch_max_bytes)
        self.asked.min_bytes = <int32_t> min(<int64_t> self.asked.min_bytes, self.left)
        topics = read_size(&cursor, flexible)
        if self.left < 0 or not 0 < topics <= size:
            return None
        fetches += 1
        growable_reserve(&self.out, 4 + START_BYTES + SIZE_BYTES)
        self._wrote(put_size(put_start(self.out.data + 4, version, correlation_id), flexible, topics))
        for _ in range(topics):
            if not self._serve_topic(reader, services.replica_manager, version, &cursor):
                return None
        if not read_tail(&cursor, version) or self.out.size + self.total >= INT32_MAX:
            return None
        if self.total < self.asked.min_bytes and not force:
            return False
        growable_reserve(&self.out, 1)
        if flexible:
            put_8(&self.out, 0)
        put32(self.out.data, <uint32_t> (self.out.size - 4 + self.total))
        return self._parts()

    cdef void _wrote(self, uint8_t* end) noexcept:
        self.out.size = end - self.out.data

    @cython.nonecheck(True)
    cdef bint _serve_topic(self, OrdinaryFetch reader, object manager, int version, Cursor* cursor) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
        cdef object name, led
        cdef Py_ssize_t rows
        cdef uint8_t* at
        if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &self.asked.topic):
            return False
        name = reader.topic_name(&self.asked.topic, manager)
        rows = read_size(cursor, flexible)
        led = manager.topics.get(name)
        if led is None or name in self.names or not 0 < rows <= cursor_left(cursor):
            return False
        self.names[name] = None
        growable_reserve(&self.out, SIZE_BYTES + NAME_BYTES + SIZE_BYTES)
        at = put_topic(self.out.data + self.out.size, flexible, &self.asked.topic)
        self._wrote(put_size(at, flexible, rows))
        for _ in range(rows):
            if not read_row(cursor, version, &self.asked):
                return False
            if not self._serve_row(reader, led, version):
                return False
        if not flexible:
            return True
        growable_reserve(&self.out, 1)
        put_8(&self.out, 0)
        return cursor_uvarint(cursor) == 0      # no tagged fields

    @cython.nonecheck(True)
    cdef bint _serve_row(self, OrdinaryFetch reader, object led, int version) except -1:
        cdef Stretch found
        cdef SegmentFields segment
        cdef FileFields file
        cdef OnePartition* asked = &self.asked
        cdef PartitionFields partition = led_partition(led, asked.index, asked.leader_epoch)
        cdef int64_t limit = min(<int64_t> asked.partition_max_bytes, self.left)
        if partition is None:
            return False
        if partition.named_in == fetches:
            return False        # named twice: the handler knows what is meant
        partition.named_in = fetches
        segment = reader.find(partition.log_, asked.offset, limit, asked.committed, &found)
        if found.size == UNKNOWN:
            return False
        if limit == 0 and self.total > 0:
            found.size = 0      # no room is left
        elif segment is not None and not confirm(segment, asked.offset, limit, self.total == 0, &found):
            if found.first == UNKNOWN or self.total == 0:
                return False
            found.size = 0      # not for its first batch
        self.partitions.append(partition)
        growable_reserve(&self.out, ROW_BYTES + 1)
        self._wrote(put_row(self.out.data + self.out.size, version, asked, &found))
        if found.size > 0:
            file = segment.open_file_
            self.regions.append((self.out.size, FileRegion(file.fd, found.position, found.size, file)))
            self.total += found.size
            self.left = max(<int64_t> 0, self.left - found.size)
        if version >= FIRST_FLEXIBLE_VERSION:
            put_8(&self.out, 0)
        return True

    cdef list _parts(self):
        cdef list parts = []
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t cut
        for cut, region in self.regions:
            parts.append(PyBytes_FromStringAndSize(<const char*> self.out.data + start, cut - start))
            parts.append(region)
            start = cut
        if start < self.out.size:
            parts.append(PyBytes_FromStringAndSize(<const char*> self.out.data + start, self.out.size - start))
        return parts
