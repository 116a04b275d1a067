"""A producer of librdkafka and what becomes of its records: see `delivery_client.pyx`."""

from libc.stdint cimport int32_t, int64_t

from kbroker._fast.base.column_buffer cimport Room
from kbroker._fast.replay.delivery_cells cimport Cells
from kbroker._fast.replay.librdkafka cimport Client, Event, Functions, Library, Queue, Topic
from kbroker._fast.replay.replay_rows cimport Chunk, ReplayRows


cdef enum:
    MICROSECOND = 1_000
    MILLISECOND = 1_000_000
    SECOND = 1_000_000_000


cdef class DeliveryClient:
    cdef Functions api
    cdef Library library
    cdef Client* client
    cdef Queue* queue
    cdef Room topics         # Topic*
    cdef Room chunks         # Chunk*, NULL where a slot is free
    cdef Room failures       # Failure
    cdef Room events         # Failure, with neither slot nor row
    cdef list held           # by slot: ReplayRows
    cdef set released
    cdef Cells cells
    cdef Py_ssize_t latency_hint, done_hint
    cdef int64_t start_ns
    cdef bint no_memory
    cdef readonly int64_t acknowledged

    cdef int _open(self, settings) except -1
    cdef int _add_topic(self, bytes name) except -1
    cdef ReplayRows _rows(self, Py_ssize_t slot)
    cdef int _let_go(self) except -1
    cdef int32_t _second(self, int64_t now) noexcept nogil
    cdef void _serve(self, int timeout_ms) noexcept nogil
    cdef void _take_deliveries(self, Event* event) noexcept nogil
    cdef bint _count_end(
        self, const Chunk* chunk, Py_ssize_t row, int32_t partition, int64_t now, int32_t second
    ) noexcept nogil
    cdef bint _fail(self, int64_t now, Py_ssize_t slot, Py_ssize_t row, int code) noexcept nogil
    cdef bint _note(self, Room* room, int32_t second, Py_ssize_t slot, Py_ssize_t row, int code) noexcept nogil
    cdef void _take_error(self, Event* event) noexcept nogil
