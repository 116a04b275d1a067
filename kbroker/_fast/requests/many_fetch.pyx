"""Fetches of several partitions without a session, answered from their bytes; what any such answer is made of.

Clients without sessions name all their partitions in each fetch, and are told of all in each answer, though few have
records: a partition takes a few fields of C and some 40 bytes, and no struct.  Whatever is out of the ordinary at one
of them leaves the whole request to the handler.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._fast.base.cursor cimport Cursor, cursor_init, cursor_left, cursor_uvarint
from kbroker._fast.net.direct cimport NAME_BYTES, Topic, put_size, put_topic, read_size, read_topic
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.base.growable cimport growable_free, growable_reserve, put_8
from kbroker._fast.log.log_fields cimport FileFields, PartitionFields, SegmentFields, led_partition
from kbroker._fast.requests.one_partition cimport (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    LAST_VERSION,
    ROW_BYTES,
    SIZE_BYTES,
    START_BYTES,
    Stretch,
    put_row,
    put_start,
    read_head,
    read_row,
    read_tail,
)
from kbroker._fast.requests.ordinary_fetch cimport UNKNOWN, OrdinaryFetch, confirm
from kbroker._fast.base.put cimport put32

cdef uint64_t fetches = 0       # that have been looked at; numbers them


cdef class ManyFetch(OrdinaryFetch):
    """What `OrdinaryFetch` does, for fetches of any number of partitions."""

    cdef object serve(self, object services, int version, int correlation_id, const uint8_t* data, Py_ssize_t size,
                      bint force):
        cdef FullAnswer answer
        cdef object frame = OrdinaryFetch.serve(self, services, version, correlation_id, data, size, force)
        if frame is not None or self.of_one:
            return frame
        answer = FullAnswer()
        frame = answer.serve(self, services, version, correlation_id, data, size, force)
        if frame is False:
            self.found_too_little(answer.asked.max_wait_ms, list(answer.names), tuple(answer.partitions))
        return frame


cdef class FetchAnswer:
    """The answer to a fetch of many partitions, as far as it is written."""

    def __cinit__(self):
        self.partitions = []
        self.regions = []

    def __dealloc__(self):
        growable_free(&self.out)

    cdef bint set_limits(self, object services) except -1:
        """Cut what is asked for to what the broker gives at most; False for what cannot be."""
        self.left = min(<int64_t> self.asked.max_bytes, <int64_t> services.fetch_max_bytes)
        self.asked.min_bytes = <int32_t> min(<int64_t> self.asked.min_bytes, self.left)
        return self.left >= 0

    cdef FileRegion look(self, OrdinaryFetch reader, LogFields log, Stretch* found):
        """The records of the partition asked for; `found` has a size of UNKNOWN where the handler decides."""
        cdef int64_t limit = min(<int64_t> self.asked.partition_max_bytes, self.left)
        cdef SegmentFields segment = reader.find(log, self.asked.offset, limit, self.asked.committed, found)
        cdef FileFields file
        if found.size == UNKNOWN:
            return None
        if limit == 0 and self.total > 0:
            found.size = 0      # no room is left
        elif segment is not None and not confirm(segment, self.asked.offset, limit, self.total == 0, found):
            found.size = UNKNOWN if found.first == UNKNOWN else 0       # no room for its first batch
        if found.size <= 0:
            return None
        self.total += found.size
        self.left = max(<int64_t> 0, self.left - found.size)
        file = segment.open_file_
        return FileRegion(file.fd, found.position, found.size, file)

    cdef int begin(self, int version, int correlation_id, int session_id, Py_ssize_t topics) except -1:
        growable_reserve(&self.out, 4 + START_BYTES + SIZE_BYTES)
        self.wrote(put_size(put_start(self.out.data + 4, version, correlation_id, session_id),
                            version >= FIRST_FLEXIBLE_VERSION, topics))
        return 0

    cdef int begin_topic(self, int version, const Topic* topic, Py_ssize_t rows) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
        growable_reserve(&self.out, SIZE_BYTES + NAME_BYTES + SIZE_BYTES)
        self.wrote(put_size(put_topic(self.out.data + self.out.size, flexible, topic), flexible, rows))
        return 0

    cdef int put_partition(self, int version, const Stretch* found, FileRegion records) except -1:
        growable_reserve(&self.out, ROW_BYTES)
        self.wrote(put_row(self.out.data + self.out.size, version, &self.asked, found))
        if records is not None:
            self.regions.append((self.out.size, records))
        return self.put_tags(version)

    cdef int put_tags(self, int version) except -1:
        """No tagged fields."""
        if version >= FIRST_FLEXIBLE_VERSION:
            growable_reserve(&self.out, 1)
            put_8(&self.out, 0)
        return 0

    cdef list end(self, int version):
        """All of it."""
        cdef list parts = []
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t cut
        self.put_tags(version)
        put32(self.out.data, <uint32_t> (self.out.size - 4 + self.total))
        for cut, region in self.regions:
            parts.append(PyBytes_FromStringAndSize(<const char*> self.out.data + start, cut - start))
            parts.append(region)
            start = cut
        if start < self.out.size:
            parts.append(PyBytes_FromStringAndSize(<const char*> self.out.data + start, self.out.size - start))
        return parts

    cdef void wrote(self, uint8_t* end) noexcept:
        self.out.size = end - self.out.data


cdef class FullAnswer(FetchAnswer):
    """One look at all partitions that a fetch without a session names, each answered where it is met."""

    cdef dict names             # of the topics, in their order

    def __cinit__(self):
        self.names = {}

    cdef object serve(self, OrdinaryFetch reader, object services, int version, int correlation_id,
                      const uint8_t* data, Py_ssize_t size, bint force):
        """The answer; None where the handler decides, False where there is not enough yet, unless `force`."""
        global fetches
        cdef Cursor cursor
        cdef Py_ssize_t topics
        cursor_init(&cursor, data, size)
        if not FIRST_VERSION <= version <= LAST_VERSION or not read_head(&cursor, version, &self.asked):
            return None
        topics = read_size(&cursor, version >= FIRST_FLEXIBLE_VERSION)
        if not self.set_limits(services) or not 0 < topics <= size:
            return None
        fetches += 1
        self.begin(version, correlation_id, 0, topics)
        for _ in range(topics):
            if not self._serve_topic(reader, services.replica_manager, version, &cursor):
                return None
        if not read_tail(&cursor, version) or self.out.size + self.total >= INT32_MAX:
            return None
        if self.total < self.asked.min_bytes and not force:
            return False
        return self.end(version)

    @cython.nonecheck(True)
    cdef bint _serve_topic(self, OrdinaryFetch reader, object manager, int version, Cursor* cursor) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE_VERSION
        cdef object name, led
        cdef Py_ssize_t rows
        if not read_topic(cursor, flexible, version >= FIRST_VERSION_WITH_TOPIC_IDS, &self.asked.topic):
            return False
        name = reader.topic_name(&self.asked.topic, manager)
        rows = read_size(cursor, flexible)
        led = manager.topics.get(name)
        if led is None or name in self.names or not 0 < rows <= cursor_left(cursor):
            return False
        self.names[name] = None
        self.begin_topic(version, &self.asked.topic, rows)
        for _ in range(rows):
            if not read_row(cursor, version, &self.asked) or not self._serve_row(reader, led, version):
                return False
        self.put_tags(version)
        return not flexible or cursor_uvarint(cursor) == 0      # no tagged fields

    cdef bint _serve_row(self, OrdinaryFetch reader, object led, int version) except -1:
        cdef Stretch found
        cdef FileRegion records
        cdef PartitionFields partition = led_partition(led, self.asked.index, self.asked.leader_epoch)
        if partition is None:
            return False
        if partition.named_in == fetches:
            return False        # named twice: the handler knows what is meant
        partition.named_in = fetches
        records = self.look(reader, partition.log_, &found)
        if found.size == UNKNOWN:
            return False
        self.partitions.append(partition)
        self.put_partition(version, &found, records)
        return True
