"""The rows of one Arrow batch as a replay sends them, without a Python object per row.

Key, value and headers are columns as `RowColumns` takes them; beside them there are, for each row:

    marks       bytes of one more header, after the row's own; None for rows without
    due_us      int64, microseconds from the replay's start, 0 or more
    topics      int32, numbers of the producer's topics
    partitions  int32, -1 where the partitioner chooses; None where it always does
    produced    uint8, 0 for a row that is no record to produce; None where all are

`batch` is what the caller wants back with a row that failed.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.records.record_packer cimport RowColumns


cdef class ReplayRows(RowColumns):
    """See the module's text.  Holds the buffers."""

    def __init__(
        self,
        batch,
        Py_ssize_t rows,
        tuple keys,
        tuple values,
        tuple headers,
        tuple marks,
        due_us,
        topics,
        partitions,
        produced,
    ):
        RowColumns.__init__(self, rows, keys, values, None, headers)
        self.batch = batch
        self.chunk.due_us = <const int64_t*>self._hold(due_us, rows * 8)
        self.chunk.topics = <const int32_t*>self._hold(topics, rows * 4)
        if partitions is not None:
            self.partitions = <const int32_t*>self._hold(partitions, rows * 4)
        if produced is not None:
            self.produced = <const uint8_t*>self._hold(produced, rows)
        if marks is not None:
            self._hold_bytes(&self.marks, marks, rows)

    def check_topics(self, Py_ssize_t topic_count):
        """ValueError for a row of a topic that the producer has not got, or due before the start."""
        cdef Py_ssize_t row
        for row in range(self.rows):
            if not 0 <= self.chunk.topics[row] < topic_count:
                raise ValueError(f"row {row} has topic {self.chunk.topics[row]} of {topic_count}")
            if not 0 <= self.chunk.due_us[row] < (<int64_t>1 << 50):
                raise ValueError(f"row {row} is due {self.chunk.due_us[row]} us after the start")
