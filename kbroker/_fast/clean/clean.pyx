"""Compaction's two passes over batches, without the GIL.

Pass one (`index`) puts the key of each record into the offset map.  Pass two (`clean`) copies what stays:

    a record past the map's latest offset stays
    a record without a key goes (and is counted)
    a record that is not its key's last goes
    a tombstone goes when its batch has a delete horizon that has passed

A batch that loses nothing is copied as it is.  One that loses records keeps its base offset, last offset, sequence and
base timestamp, so that the records that stay are copied byte for byte; its header and checksum are written anew.  A
tombstone that enters the clean part gives its batch a delete horizon: bit 6 of the attributes, the horizon in place of
the base timestamp, and new timestamp deltas (KIP-534).  A batch that loses everything goes, or stays as a bare header
when it is a producer's last or the last one of the cleaned range.

Uncompressed batches are processed here from buffer to buffer.  So are batches in lz4 and zstd: they are decompressed
into a buffer of their own, and a batch that changes is compressed again.  Both passes stop (SPECIAL) at a batch of
another codec, a transactional or control batch, and a message of an old format: the caller has to decide about these,
and hands them over one batch at a time.  Every checksum is verified: what was damaged on the disk must not get a new,
valid one.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport bsearch, free, malloc
from libc.string cimport memcpy, memset

from kbroker._fast.records.batch_info cimport BatchInfo, Header, header_error
from kbroker._fast.clean.clean_output cimport (
    Output,
    begin_segment,
    end_segment,
    free_bytes,
    free_output,
    note_batch,
    reserve_bytes,
)
from kbroker._fast.clean.clean_passes cimport (
    Batch,
    GROUP,
    GROUP_BATCHES,
    STOP_CRC,
    STOP_END,
    STOP_FULL,
    STOP_HEADER,
    STOP_MEMORY,
    STOP_OVERFLOW,
    STOP_RECORDS,
    STOP_ROOM,
    State,
    batch_size,
    begin_group,
    collect_batch,
    decide,
    index_plain,
    put_entries,
    read_batch,
    take_batch,
)
from kbroker._fast.clean.clean_records cimport Entry
from kbroker._fast.clean.clean_write cimport Rules, WRITE_NOTHING, WRITE_VERBATIM, write_batch, write_packed
from kbroker._fast.records.native_codecs cimport free_codecs
from kbroker._fast.clean.offset_map cimport OffsetMap

from kbroker._fast.records.batch_info import CorruptBatchError, InvalidRecordsError

END = 0
SPECIAL = 1
FULL = 2
OVERFLOW = 3

cdef extern from "Python.h":
    int PyBUF_READ

cdef int64_t MOST_OFFSETS = 0x7FFFFFFF
cdef int64_t MOST_BYTES = 0x7FFFFFFF


cdef int compare_offsets(const void* one, const void* other) noexcept nogil:
    cdef int64_t left = (<const int64_t*>one)[0]
    cdef int64_t right = (<const int64_t*>other)[0]
    return (left > right) - (left < right)


cdef class Compaction:
    """The work of one clean: `start_clean`, `index`…, then per segment `start_segment`, `clean`…, `finish_segment`.

    Not for several threads at once.  Counters: `records_read`, `records_kept`, `keyless_count`.
    """

    def __cinit__(self, OffsetMap offsets not None):
        self.offsets = offsets
        self.last_offsets = NULL
        self.last_offset_count = 0
        memset(&self.output, 0, sizeof(Output))
        memset(&self.aside, 0, sizeof(Output))
        memset(&self.rules, 0, sizeof(Rules))
        self.state = <State*>malloc(sizeof(State))
        if self.state == NULL:
            raise MemoryError
        memset(self.state, 0, sizeof(State))

    def __dealloc__(self):
        if self.state != NULL:
            self.give_back()
            free(self.state)
        free(self.last_offsets)

    def start_clean(self, int64_t now_ms, int64_t delete_retention_ms, int64_t end_offset, last_offsets):
        """`end_offset`: where the cleaned range ends; `last_offsets`: of each active producer's last data batch."""
        cdef list ordered = sorted(last_offsets)
        cdef Py_ssize_t at
        self.rules.now_ms = now_ms
        self.rules.horizon_ms = now_ms + delete_retention_ms
        self.rules.end_offset = end_offset
        self.records_read = self.records_kept = self.keyless_count = 0
        free(self.last_offsets)
        self.last_offset_count = len(ordered)
        self.last_offsets = <int64_t*>malloc(<size_t>(len(ordered) + 1) * sizeof(int64_t))
        if self.last_offsets == NULL:
            raise MemoryError
        for at in range(len(ordered)):
            self.last_offsets[at] = ordered[at]

    cdef object fail(self, int stop, Py_ssize_t left):
        if stop == STOP_MEMORY:
            return MemoryError()
        if stop == STOP_HEADER:
            return header_error(self.state.fault, &self.state.header, left)
        if stop == STOP_CRC:
            return CorruptBatchError(
                f"Record is corrupt (stored crc = {self.state.header.crc}, computed crc = {self.state.crc}) in the "
                f"batch at offset {self.state.header.base_offset}"
            )
        return InvalidRecordsError(f"the batch at offset {self.state.header.base_offset} has records it cannot have")

    def index(self, buffer, Py_ssize_t position, Py_ssize_t end, int64_t start_offset):
        """Pass one over the plain batches between two positions: (next position, END, SPECIAL or FULL)."""
        cdef Py_buffer view
        cdef int stop
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            check_range(&view, position, end)
            self.state.position = position
            with nogil:
                stop = index_plain(self.state, <const uint8_t*>view.buf, end, self.offsets, start_offset)
        finally:
            PyBuffer_Release(&view)
        if stop > STOP_OVERFLOW:
            raise self.fail(stop, end - self.state.position)
        return self.state.position, stop

    def index_records(self, payload, BatchInfo info not None, int64_t start_offset):
        """Pass one over one batch's records, decompressed; False when the map is full."""
        cdef Py_buffer view
        cdef int stop
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            self.state.entries.count = 0
            self.state.header = info.header
            with nogil:
                stop = take_batch(self.state, <const uint8_t*>view.buf, view.len)
                if not stop:
                    stop = put_entries(self.state, self.offsets, start_offset)
        finally:
            PyBuffer_Release(&view)
        if stop > STOP_OVERFLOW:
            raise self.fail(stop, 0)
        return stop != STOP_FULL

    def start_segment(self, int64_t base_offset, int64_t index_interval_bytes, int64_t max_index_bytes):
        begin_segment(&self.output, base_offset, index_interval_bytes, max_index_bytes)

    cdef bint keeps_empty(self, const Header* header) noexcept nogil:
        cdef int64_t last = header.base_offset + header.last_offset_delta
        if last + 1 == self.rules.end_offset:
            return True
        if header.producer_id < 0 or self.last_offset_count == 0:
            return False
        return (
            bsearch(&last, self.last_offsets, <size_t>self.last_offset_count, sizeof(int64_t), compare_offsets) != NULL
        )

    cdef bint fits(self, const Header* header) noexcept nogil:
        """Whether a batch may go into the segment that is written, whose first batch always may."""
        cdef int64_t last = header.base_offset + header.last_offset_delta
        if self.output.batches == 0 and self.state.batch_count == 0:
            return True
        return (
            last - self.output.base_offset <= MOST_OFFSETS
            # A new horizon makes a record longer by at most 14 bytes.
            and self.output.position + self.state.collected_bytes + batch_size(header)
            + 14 * (<int64_t>header.records_count + self.state.entries.count) <= MOST_BYTES
        )

    cdef int write_collected(self) noexcept nogil:
        """Judges the collected batches and writes what stays of them."""
        cdef int at
        cdef Batch* batch
        cdef Entry* entries
        cdef int written
        decide(self.state, self.offsets)
        for at in range(self.state.batch_count):
            batch = &self.state.batches[at]
            self.rules.keep_empty = self.keeps_empty(&batch.header)
            entries = self.state.entries.items + batch.first
            if batch.codec:
                written = write_packed(
                    &self.output, &self.aside, &self.state.codecs, batch.codec, &batch.header, batch.data, entries,
                    batch.count, &self.rules,
                )
            else:
                written = write_batch(
                    &self.output, &batch.header, batch.data, entries, batch.count, &self.rules
                )
            if written < 0:
                return STOP_MEMORY
            self.note(entries, batch.count)
        begin_group(self.state)
        return STOP_END

    cdef void note(self, const Entry* entries, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t at
        self.records_read += count
        for at in range(count):
            self.records_kept += entries[at].kept
            self.keyless_count += entries[at].key == NULL and not entries[at].kept

    cdef int clean_plain(self, const uint8_t* data, Py_ssize_t end) noexcept nogil:
        cdef State* state = self.state
        cdef int stop, taken, written
        begin_group(state)
        while True:
            stop = read_batch(state, data, end)
            if stop < 0 and not self.fits(&state.header):
                stop = STOP_OVERFLOW
            if stop < 0:
                taken = collect_batch(state, data + state.position, stop)
                if taken == STOP_RECORDS or taken == STOP_MEMORY:
                    return taken
                stop = taken if taken else stop
            if stop < 0 and state.entries.count < GROUP and state.batch_count < GROUP_BATCHES:
                continue
            written = self.write_collected()
            if written:
                return written
            if stop >= 0 and stop != STOP_ROOM:
                return stop

    def clean(self, buffer, Py_ssize_t position, Py_ssize_t end):
        """Pass two over the plain batches between two positions: (next position, END, SPECIAL or OVERFLOW)."""
        cdef Py_buffer view
        cdef int stop
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            check_range(&view, position, end)
            self.state.position = position
            with nogil:
                stop = self.clean_plain(<const uint8_t*>view.buf, end)
        finally:
            PyBuffer_Release(&view)
        if stop > STOP_OVERFLOW:
            raise self.fail(stop, end - self.state.position)
        return self.state.position, stop

    def clean_records(
        self, payload, BatchInfo info not None, *, bint drop_all, bint keep_all, bint stamp, bint keep_empty
    ):
        """Pass two over one batch's decompressed records.  Returns None when the batch stays as it is, b"" when the
        batch is dropped, else its new bytes with the records uncompressed.

        `drop_all` for an aborted batch, `keep_all` for a control batch; `stamp` gives the batch a delete horizon
        whether it has tombstones or not.
        """
        cdef Py_buffer view
        cdef State* state = self.state
        cdef int stop
        cdef int written = WRITE_NOTHING
        cdef Py_ssize_t at
        cdef Output aside
        memset(&aside, 0, sizeof(Output))
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            state.entries.count = 0
            state.header = info.header
            self.rules.keep_empty = keep_empty or self.keeps_empty(&info.header)
            self.rules.stamp = stamp
            with nogil:
                stop = take_batch(state, <const uint8_t*>view.buf, view.len)
                if not stop:
                    if keep_all or drop_all:
                        for at in range(state.entries.count):
                            state.entries.items[at].kept = not drop_all
                            state.entries.items[at].past_map = True
                    else:
                        decide(state, self.offsets)
                    written = write_batch(
                        &aside, &info.header, NULL, state.entries.items, state.entries.count, &self.rules
                    )
                    self.note(state.entries.items, state.entries.count)
            self.rules.stamp = False
            if stop:
                raise self.fail(stop, 0)
            if written < 0:
                raise MemoryError
            if written == WRITE_VERBATIM:
                return None
            return PyBytes_FromStringAndSize(<char*>aside.log.data, aside.log.size)
        finally:
            free_bytes(&aside.log)
            PyBuffer_Release(&view)

    def fits_segment(self, BatchInfo info not None):
        """Whether the batch may go into the segment that is being written."""
        begin_group(self.state)
        return self.fits(&info.header)

    def add(self, batch, BatchInfo info not None):
        """Adds a whole batch, as it is, to what is written."""
        cdef Py_buffer view
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if not reserve_bytes(&self.output.log, view.len):
                raise MemoryError
            memcpy(self.output.log.data + self.output.log.size, view.buf, <size_t>view.len)
            self.output.log.size += view.len
            if not note_batch(
                &self.output, view.len, info.header.base_offset + info.header.last_offset_delta,
                info.header.max_timestamp,
            ):
                raise MemoryError
        finally:
            PyBuffer_Release(&view)

    def written(self):
        """A view of the log bytes that wait to be taken; good until the next call that writes."""
        if self.output.log.size == 0:
            return memoryview(b"")
        return PyMemoryView_FromMemory(<char*>self.output.log.data, self.output.log.size, PyBUF_READ)

    def taken(self):
        """The caller has written the bytes that `written` gave to the segment's file."""
        self.output.log.size = 0

    @property
    def segment_bytes(self):
        return self.output.position

    @property
    def segment_max_timestamp(self):
        return self.output.max_timestamp

    @property
    def pending_bytes(self):
        return self.output.log.size

    def finish_segment(self):
        """(offset index, time index) of the segment, as files."""
        if not end_segment(&self.output):
            raise MemoryError
        return (
            PyBytes_FromStringAndSize(<char*>self.output.offsets.data, self.output.offsets.size),
            PyBytes_FromStringAndSize(<char*>self.output.times.data, self.output.times.size),
        )

    def release(self):
        """Gives back the memory of buffers and map."""
        self.offsets.clear()
        self.give_back()

    cdef void give_back(self):
        begin_group(self.state)
        free_output(&self.output)
        free_output(&self.aside)
        free_bytes(&self.state.payloads)
        free_codecs(&self.state.codecs)
        free(self.state.entries.items)
        memset(&self.state.entries, 0, sizeof(self.state.entries))


cdef int check_range(const Py_buffer* view, Py_ssize_t position, Py_ssize_t end) except -1:
    if position < 0 or end < position or end > view.len:
        raise ValueError(f"positions {position} to {end} are outside of a buffer of {view.len} bytes")
    return 0
