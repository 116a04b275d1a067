"""Batches appended on the fast path, alone or in groups."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.log.append_group cimport AppendGroup, write_groups
from kbroker._fast.log.fast_append cimport append_at
from kbroker._fast.log.log_fields cimport LogFields


def append_batch(LogFields log, records, int32_t leader_epoch, int64_t now_ms, bint transactional=False):
    """Appends the one batch in `records` (writable): its base offset, or -1 where it is not appended here."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_WRITABLE)
    try:
        return append_at(log, <uint8_t*> view.buf, view.len, leader_epoch, now_ms, transactional)
    finally:
        PyBuffer_Release(&view)


def append_together(LogFields log, batches, int32_t leader_epoch, int64_t now_ms):
    """Appends batches (writable buffers, GROUP_BATCHES at most count) as one group.

    The base offset of each; None for one that is not appended here or had to wait for another of the group, or for
    all where the group was not written.  Those are as they were.
    """
    cdef AppendGroup group = AppendGroup()
    cdef Py_buffer view
    cdef list views = [memoryview(each) for each in batches]
    cdef list members = []
    cdef object each
    cdef int index
    if not group.begin(log, leader_epoch, now_ms):
        return [None] * len(views)
    for each in views:
        PyObject_GetBuffer(each, &view, PyBUF_WRITABLE)
        # The memoryview keeps the bytes in place behind this.
        PyBuffer_Release(&view)
        members.append(group.group.count - 1 if group.add(<uint8_t*> view.buf, view.len, False) else None)
    try:
        write_groups([group], 1, HelperPool(0))
        if not group.finish():
            return [None] * len(views)
        offsets = [group.group.members[index].offset for index in range(group.group.count)]
        return [None if each is None or offsets[each] < 0 else offsets[each] for each in members]
    finally:
        group.undo()
        group.clear()
