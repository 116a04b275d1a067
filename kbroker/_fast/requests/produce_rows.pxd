"""Produce: its request read from bytes, and its answer written, partition by partition, without structs.

A request is read twice: once to check that it is well-formed, then row by row.  So no part of a malformed request is
stored, and no memory is allocated for a count that the request does not bear out.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker._fast.base.cursor cimport (
    Cursor,
    cursor_init,
    cursor_int16,
    cursor_int32,
    cursor_left,
    cursor_take,
    cursor_uvarint,
)
from kbroker._fast.net.direct cimport Topic, read_size, read_text_size, read_topic
from kbroker._fast.gate.gate cimport Gate
from kbroker._fast.requests.fetch_rows cimport is_ascii


cdef struct ProduceLayout:
    # From which version on what is there, by the field tables (`handlers.produce.versions`).
    int first                   # that is read here
    int last
    int flexible
    int topic_ids
    int log_append_times
    int log_starts
    int record_errors


cdef struct ProduceRows:
    Cursor cursor
    bint flexible
    bint by_id
    bint transactional          # the request names a transactional id
    int16_t acks
    int32_t timeout_ms
    Py_ssize_t topics           # that are still to come
    Py_ssize_t rows             # of the topic at hand that are still to come
    Py_ssize_t rows_of_topic
    Topic topic
    int32_t index
    uint8_t* records            # within the request, where they may be written into
    Py_ssize_t size


cdef inline bint begin_rows(ProduceRows* self, const ProduceLayout* layout, int version, const uint8_t* data,
                            Py_ssize_t size) noexcept nogil:
    """Reads what stands before the topics; False where it is not plain: an odd transactional id, an unknown acks."""
    cdef const uint8_t* transactional_id
    cdef Py_ssize_t id_bytes
    self.flexible = version >= layout.flexible
    self.by_id = version >= layout.topic_ids
    self.rows = 0
    cursor_init(&self.cursor, data, size)
    id_bytes = read_text_size(&self.cursor, self.flexible)
    self.transactional = id_bytes >= 0
    if self.transactional:
        transactional_id = cursor_take(&self.cursor, id_bytes)
        if transactional_id == NULL or not is_ascii(transactional_id, id_bytes):
            return False
    elif id_bytes != -1:
        return False
    self.acks = cursor_int16(&self.cursor)
    self.timeout_ms = cursor_int32(&self.cursor)
    self.topics = read_size(&self.cursor, self.flexible)
    return not self.cursor.fault and 0 < self.topics and -1 <= self.acks <= 1


cdef inline bint needs_handler(const ProduceRows* self, Gate gate) noexcept:
    """Whether a right to the transactional id has to be asked for."""
    return self.transactional and gate is not None and gate.judge is not None


cdef inline bint no_tags(ProduceRows* self) noexcept nogil:
    return not self.flexible or cursor_uvarint(&self.cursor) == 0


cdef inline int next_row(ProduceRows* self) noexcept nogil:
    """1: the next row; 0: there was none left, and the request ends here; -1: the request is not plain."""
    if self.rows == 0:
        if self.topics == 0:
            return 0 if no_tags(self) and not self.cursor.fault and cursor_left(&self.cursor) == 0 else -1
        self.topics -= 1
        if not read_topic(&self.cursor, self.flexible, self.by_id, &self.topic):
            return -1
        self.rows = self.rows_of_topic = read_size(&self.cursor, self.flexible)
        if self.rows <= 0:
            return -1
    self.rows -= 1
    self.index = cursor_int32(&self.cursor)
    self.size = read_size(&self.cursor, self.flexible)
    self.records = <uint8_t*> cursor_take(&self.cursor, self.size)
    if self.records == NULL or not no_tags(self):
        return -1
    if self.rows == 0 and not no_tags(self):
        return -1       # tagged fields of the topic
    return -1 if self.cursor.fault else 1
