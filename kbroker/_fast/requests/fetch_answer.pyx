"""The answer to a fetch while it is worked out: partitions are looked at, and written one behind the other.

A partition is looked at in C (`look`, `put_found`) or, alone, by Python (`read_alone`, `put_data`): one with an error
or a damaged segment, of a follower, with aborted transactions.  Both continue the same answer.  Up to COPY_BYTES of
records are read into the answer itself; others are file regions, which `sendfile` brings to the socket.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kbroker._fast.base.put cimport put32
from kbroker._fast.files.file_read cimport read_cached
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.log.fetch_target cimport FetchTarget, is_enough
from kbroker._fast.log.log_fields cimport LateRead, LogFields, RecordSource
from kbroker._fast.net.direct cimport Topic, put_size, put_topic
from kbroker._fast.requests.fetch_rows cimport (
    AROUND_TOPIC_BYTES,
    ROW_BYTES,
    UNKNOWN,
    FetchHead,
    FetchLayout,
    Found,
    put_row,
    put_start,
    tags_behind,
)
from kbroker._fast.requests.partition_read cimport confirm, find, note_next
from kbroker._fast.wire.codec cimport Program
from kbroker._fast.wire.encoder cimport Encoder, begin as begin_frame, encode_struct, finish
from kbroker._fast.wire.structs cimport KIND_ARRAY, KIND_STRUCT, Plan

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject** frame, Py_ssize_t size) except -1

cdef enum:
    # A region of its own costs a probe, a `sendfile` and two more sends; so many bytes of records are copied for less.
    COPY_BYTES = 48800


cdef class FetchVersions:
    """From which version on what is there; see `handlers.fetch.versions`."""

    def __init__(self, *, int first, int last, int throttle_times, int max_bytes, int isolation_levels, int log_starts,
                 int sessions, int leader_epochs, int racks, int flexible, int topic_ids, int replica_states):
        self.layout = FetchLayout(first=first, last=last, throttle_times=throttle_times, max_bytes=max_bytes,
                                  isolation_levels=isolation_levels, log_starts=log_starts, sessions=sessions,
                                  leader_epochs=leader_epochs, racks=racks, flexible=flexible, topic_ids=topic_ids,
                                  replica_states=replica_states)


cdef class FetchRules:
    """What all fetches share.

    `versions`: those of the request's and the answer's fields.  `file_system`: the type of those files that are read
    here.  `read_partition(services, version, replica_id, committed, target, limit, first, reader)` reads a partition
    alone: (its struct of the answer, whether the client must get that at once, the `LateRead` where its records
    come later).  `reader`: where the client stands; None where that does not matter.
    `compile_answer(version)` gives the answer's codec program.
    """

    def __init__(self, FetchVersions versions not None, file_system, read_partition, compile_answer):
        self.layout = versions.layout
        self.file_system = file_system
        self.read_partition = read_partition
        self.compile_answer = compile_answer
        self.row_plans = [None] * (self.layout.last + 1)

    cdef object row_plan(self, int version):
        """How a partition of an answer is encoded."""
        cdef Plan plan
        if self.row_plans[version] is None:
            plan = (<Program?> self.compile_answer(version)).plan
            self.row_plans[version] = items_of(items_of(plan))
        return self.row_plans[version]


cdef Plan items_of(Plan plan):
    """The plan of the structs in the one array of structs that stands outside of tagged fields."""
    cdef Py_ssize_t index
    for index in range(plan.op_count):
        if plan.ops[index].kind == KIND_ARRAY and plan.ops[index].item == KIND_STRUCT:
            return <Plan> plan.ops[index].plan
    raise ValueError("no array of structs")


@cython.freelist(8)
cdef class FetchAnswer:
    cdef int set_limits(self, const FetchHead* head) except -1:
        """Cuts what is asked for to what the broker gives at most."""
        self.committed = head.committed
        self.copy_left = COPY_BYTES
        self.left = min(<int64_t> head.max_bytes, <int64_t> self.services.fetch_max_bytes)
        self.min_bytes = <int32_t> min(<int64_t> head.min_bytes, self.left)
        return 0

    cdef int may_wait_at(self, RecordSource source) except -1:
        if self.waiting is None:
            self.waiting = source
        elif self.more_waiting is None:
            self.more_waiting = [source]
        else:
            self.more_waiting.append(source)
        return 0

    cdef tuple all_waiting(self):
        return (() if self.waiting is None else (self.waiting,)) + tuple(self.more_waiting or ())

    cdef int32_t wait_ms(self, int32_t max_wait_ms) except? -1:
        """How long the fetch may wait in all; `max_wait_ms`: where no read is late."""
        return max_wait_ms if self.late is None else max([(<LateRead?> each).wait_ms for each in self.late])

    cdef bint has_enough(self, int32_t max_wait_ms, bint force) except -1:
        """Whether the fetch is answered with what was found.  With nothing at all it is not, where a read is late."""
        cdef int64_t least = self.min_bytes if self.late is None else max(1, self.min_bytes)
        return is_enough(self.total, least, self.wait_ms(max_wait_ms), self.waiting is not None, self.urgent, force)

    # Looking at partitions

    cdef bint look(self, LogFields log, int64_t offset, int64_t max_bytes, Found* found) except -1:
        """Looks for records of a partition; False where Python has to read it.

        The records themselves are not looked at where the size of what is found does not depend on them, and the copy
        looks at them anyway.
        """
        cdef int64_t limit = min(max_bytes, self.left)
        self.file = None
        if self.replica_id >= 0 or self.version < self.rules.layout.isolation_levels:
            return False
        self.segment = find(log, self.rules.file_system, offset, limit, self.committed, found)
        if found.size == UNKNOWN:
            return False
        if limit == 0 and self.total > 0:
            found.size = 0      # no room is left
        elif self.segment is not None and not (
            found.first == UNKNOWN and found.size <= self.copy_left
            and (found.size < limit or (self.written_at_once and self.total == 0 and found.size > 0))
        ):
            if not confirm(self.segment, self.segment.open_file_, offset, limit, self.total == 0, found):
                if found.first == UNKNOWN:
                    return False
                found.size = 0      # no room for its first batch
        if found.size > 0:
            self.file = self.segment.open_file_
            self.total += found.size
        self.left = max(<int64_t> 0, self.left - found.size)
        return True

    cdef object read_alone(self, FetchTarget target):
        """Has Python read a partition: its struct of the answer."""
        cdef Py_ssize_t size
        cdef object manager
        data, urgent, late = self.rules.read_partition(self.services, self.version, self.replica_id, self.committed,
                                                       target, self.left, self.total == 0, self.reader)
        size = len(data.records)
        self.total += size
        self.left = max(<int64_t> 0, self.left - size)
        self.urgent = self.urgent or urgent
        self.read = None
        if data.error_code == 0:
            manager = self.services.replica_manager
            self.read = manager.replica(target.topic, target.index)
            self.may_wait_at(self.read)
        if late is not None:
            self.may_wait_at(late)
            if self.late is None:
                self.late = []
            self.late.append(late)
        return data

    cdef int count_sent(self, LogFields log, int64_t size) except -1:
        """So many bytes of a log's records are in this answer to a consumer."""
        if self.total >= self.min_bytes:
            log.traffic.bytes_out += size
        else:
            # Where there is too little in the end, all is read again later.
            if self.unsent is None:
                self.unsent = []
            self.unsent.append((log, size))
        return 0

    # Writing

    cdef int begin(self, int correlation_id, int32_t session_id, Py_ssize_t topics) except -1:
        self.data = self.start
        self.capacity = INLINE_BYTES
        self.size = put_start(self.data + 4, &self.rules.layout, self.version, correlation_id, 0, session_id,
                              topics) - self.data
        return 0

    cdef int begin_topic(self, const Topic* topic, Py_ssize_t rows) except -1:
        cdef bint flexible = self.version >= self.rules.layout.flexible
        # A decoded request may name what is longer than any topic's name.
        self.reserve(topic.size + AROUND_TOPIC_BYTES)
        self.size = put_size(put_topic(self.data + self.size, flexible, topic), flexible, rows) - self.data
        return 0

    cdef int end_topic(self) except -1:
        return self.put_tags()

    cdef bint put_found(self, int32_t index, int64_t offset, Found* found) except -1:
        """A partition with what was found last, in `segment` and `file`; False, and it is not there, where the records
        are not what they should be."""
        cdef Py_ssize_t start = self.size
        cdef int64_t guessed = found.size
        cdef FileFields file = self.file
        self.reserve(ROW_BYTES)
        self.size = put_row(self.data + start, &self.rules.layout, self.version, index, self.committed, found) \
            - self.data
        if found.size > 0 and not self._copy(offset, found):
            if not confirm(self.segment, file, offset, found.size, True, found):
                self.size = start
                self.total -= guessed
                self.left += guessed
                return False
            if found.size != guessed:
                # The first batch, which comes whole, is longer than what was asked for.
                self.total += found.size - guessed
                self.left = max(<int64_t> 0, self.left + guessed - found.size)
                self.size = put_row(self.data + start, &self.rules.layout, self.version, index, self.committed,
                                    found) - self.data
            self._cut(FileRegion(file.fd, found.position, found.size, file))
        self.put_tags()
        return True

    cdef bint _copy(self, int64_t offset, const Found* found) except -1:
        """Whether the records have been looked at, and are in the answer now."""
        if found.first > found.size or not self._read_cached(self.file.fd, found.position, found.size):
            return False
        if found.first == UNKNOWN and not note_next(self.segment, self.data + self.size, offset, found):
            return False
        self.size += found.size
        self.copy_left -= found.size
        return True

    cdef bint _read_cached(self, int fd, int64_t position, Py_ssize_t size) except -1:
        """Reads so many bytes from the page cache into the answer, behind its end; False where they may not be copied,
        or are not in memory."""
        if size > self.copy_left:
            return False
        self.reserve(size + tags_behind(&self.rules.layout, self.version))
        return read_cached(fd, self.data + self.size, size, position)

    cdef int put_data(self, object data) except -1:
        """A partition as Python gives it."""
        cdef Encoder encoder
        cdef list cuts = []
        cdef Plan plan = self.rules.row_plan(self.version)
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t cut
        begin_frame(&encoder, plan)
        encoder.cuts = <PyObject*> cuts
        try:
            encode_struct(&encoder, plan, data)
            for cut, region in cuts:
                self.put_bytes(encoder.out.data + start, cut - start)
                self.put_region(region)
                start = cut
            self.put_bytes(encoder.out.data + start, encoder.out.size - start)
        finally:
            finish(&encoder)
        return 0

    cdef object end(self):
        """The whole answer, which is given: bytes, or a list of bytes and file regions."""
        cdef int64_t length
        if self.unsent is not None:
            for log, size in self.unsent:
                (<LogFields> log).traffic.bytes_out += <int64_t> size
        self.put_tags()
        length = self.cut_bytes + self.size - 4
        if length > INT32_MAX:
            raise OverflowError(f"an answer of {length} bytes")
        if self.parts is None:
            put32(self.data, <uint32_t> length)
            return self._taken()
        self.flush()
        # Made here, and not seen by anyone yet.
        put32(<uint8_t*> PyBytes_AS_STRING(self.parts[0]), <uint32_t> length)
        return self.parts

    cdef bytes _taken(self):
        """The bytes in the buffer, which is used no more."""
        cdef PyObject* frame
        if self.buffer is None:
            return PyBytes_FromStringAndSize(<const char*> self.data, self.size)
        if self.size == self.capacity:
            return self.buffer
        frame = <PyObject*> self.buffer
        Py_INCREF(self.buffer)
        self.buffer = None
        _PyBytes_Resize(&frame, self.size)
        taken = <bytes> frame
        Py_DECREF(taken)
        return taken

    cdef int put_bytes(self, const void* data, Py_ssize_t size) except -1:
        self.reserve(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int put_region(self, FileRegion region) except -1:
        if not self._read_cached(region.fd, region.position, region.size):
            return self._cut(region)
        self.size += region.size
        self.copy_left -= region.size
        return 0

    cdef int _cut(self, FileRegion region) except -1:
        self.flush()
        self.parts.append(region)
        self.cut_bytes += region.size
        return 0

    cdef int put_tags(self) except -1:
        """No tagged fields."""
        if self.version >= self.rules.layout.flexible:
            self.reserve(1)
            self.data[self.size] = 0
            self.size += 1
        return 0

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t wanted = self.size + more
        cdef bytes moved
        if wanted <= self.capacity:
            return 0
        if self.buffer is not None:
            wanted = max(wanted, 2 * self.capacity)
        moved = PyBytes_FromStringAndSize(NULL, wanted)
        memcpy(PyBytes_AS_STRING(moved), self.data, self.size)
        self.buffer = moved
        self.data = <uint8_t*> PyBytes_AS_STRING(moved)
        self.capacity = wanted
        return 0

    cdef int flush(self) except -1:
        """Makes a part of what was written since the last one."""
        if self.parts is None:
            self.parts = []
        if self.size > 0:
            self.parts.append(PyBytes_FromStringAndSize(<const char*> self.data, self.size))
            self.cut_bytes += self.size
            self.size = 0
        return 0
