"""Batches that came together for one log, written by one system call.

What a write into the page cache costs is mostly its pages: a piece of 16 KB takes small ones, each of which is found,
locked and counted; a write of ten such batches takes large ones, in half the time, and later readers have it cheaper.

All of a group or nothing: as long as the write has not succeeded, neither log nor batches are changed.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker._fast.batch_info cimport BatchInfo
from kbroker._fast.ordinary_append cimport RELEASE_GIL_BYTES, STAMPED_BYTES, count_in, ends_at, judge
from kbroker._fast.record_batch cimport stamp_at

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* vector, int count, int64_t offset)


cdef class AppendGroup:
    """`begin`, `add` for each batch, `write`.  The bytes of the batches are the caller's, and stay until `write`."""

    def __cinit__(self):
        self.infos = []

    cdef bint begin(self, LogFields log, int32_t leader_epoch) except -1:
        """False for a log that has no active segment with an open file."""
        self.clear()
        if log is None or log.local_ is None or log.local_.segments_ is None:
            return False
        self.segment = log.local_.segments_.active_
        if self.segment is None or self.segment.tail is None or self.segment.open_file_ is None:
            return False
        self.log = log
        # Held, so that the descriptor stays open, whoever takes it from the segment meanwhile.
        self.file = self.segment.open_file_
        self.leader_epoch = leader_epoch
        self.first_offset = self.next_offset = log.local_.log_end_offset
        self.position = self.segment.tail.size
        return True

    cdef bint add(self, uint8_t* data, Py_ssize_t size, int64_t now_ms) except -1:
        """Takes an ordinary batch that fits behind those before it; False, and it is left alone, for any other."""
        cdef int count = len(self.infos)
        cdef BatchInfo info
        if count == GROUP_BATCHES:
            return False
        info = judge(self.log, data, size, self.leader_epoch, now_ms, self.next_offset, self.position + self.total)
        if info is None or self._knows_producer(info):
            return False
        self.infos.append(info)
        self.data[count] = data
        self.sizes[count] = size
        self.offsets[count] = self.next_offset
        self.next_offset += <int64_t> info.header.last_offset_delta + 1
        self.total += size
        return True

    cdef bint _knows_producer(self, BatchInfo info):
        """Whether a batch of this group is by the same producer, whose sequence is known when that one is written."""
        cdef BatchInfo other
        if info.header.producer_id >= 0:
            for other in self.infos:
                if other.header.producer_id == info.header.producer_id:
                    return True
        return False

    cdef bint write(self) except -1:
        """Writes the group and counts its batches in.  False when nothing was added, or not all of it was written."""
        cdef int index
        cdef int count = len(self.infos)
        cdef iovec[GROUP_BATCHES] vector
        cdef uint8_t before[GROUP_BATCHES][STAMPED_BYTES]
        cdef ssize_t written
        if count == 0 or not self._is_current():
            return False
        for index in range(count):
            memcpy(before[index], self.data[index], STAMPED_BYTES)
            stamp_at(self.data[index], self.offsets[index], self.leader_epoch)
            vector[index].iov_base = self.data[index]
            vector[index].iov_len = self.sizes[index]
        if self.total >= RELEASE_GIL_BYTES:
            with nogil:
                written = pwritev(self.file.fd, vector, count, self.position)
        else:
            written = pwritev(self.file.fd, vector, count, self.position)
        if written != self.total:
            for index in range(count):
                memcpy(self.data[index], before[index], STAMPED_BYTES)
            (<object> self.segment).cut_failed_write(self.file, self.position)
            return False
        try:
            for index in range(count):
                count_in(self.log, self.segment, <BatchInfo> self.infos[index], self.offsets[index], self.sizes[index])
        except BaseException:
            # What was not counted in must not pass for records after a crash.
            (<object> self.segment).cut_failed_write(self.file, self.segment.tail.size)
            raise
        return True

    cdef bint _is_current(self):
        """Whether the log is as it was at the beginning."""
        return (
            ends_at(self.log.local_, self.segment, self.position, self.first_offset)
            and self.segment.open_file_ is self.file
            and not self.log.gate_.closed
        )

    cdef void clear(self):
        self.log = None
        self.segment = None
        self.file = None
        self.infos.clear()
        self.total = 0


def append_together(LogFields log, batches, int32_t leader_epoch, int64_t now_ms):
    """Appends batches (writable buffers, GROUP_BATCHES at most count) as one group.

    The base offset of each; None for one that is out of the ordinary or had to wait for another of the group, or for
    all where the group was not written.  Those are as they were.
    """
    cdef AppendGroup group = AppendGroup()
    cdef Py_buffer view
    cdef list views = [memoryview(each) for each in batches]
    cdef list added = []
    cdef object each
    cdef int64_t offset
    if not group.begin(log, leader_epoch):
        return [None] * len(views)
    for each in views:
        PyObject_GetBuffer(each, &view, PyBUF_WRITABLE)
        # The memoryview keeps the bytes in place behind this.
        PyBuffer_Release(&view)
        offset = group.next_offset
        added.append(offset if group.add(<uint8_t*> view.buf, view.len, now_ms) else None)
    try:
        return added if group.write() else [None] * len(views)
    finally:
        group.clear()
