"""What a fetch asks of each partition, and the fetches that wait at one."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kbroker._fast.log.log_fields cimport PartitionFields, RecordSource, led_partition


cdef class FetchTarget:
    """What a fetch asks of one partition, and in a session what the last answer said of it.

    `topic` is the name the client used, or the name behind its topic id (None while no topic has that id).
    `log_start_offset`: where the log of a follower starts, -1 for a consumer.  `refusal`: the error code that this
    client gets in place of the partition, 0 for none.
    """

    def __init__(self, topic, bytes topic_id not None, int32_t index, int64_t fetch_offset, int32_t max_bytes,
                 int32_t current_leader_epoch, int32_t last_fetched_epoch, int64_t log_start_offset=-1):
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1
        self.refusal = 0

    def update(self, FetchTarget newer not None) -> None:
        """Take over what a later fetch of the session asks for; what was answered stays."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    cdef bint is_changed(self, Py_ssize_t size, int64_t high_watermark, int64_t log_start_offset) noexcept:
        return (size > 0 or high_watermark != self.answered_high_watermark
                or log_start_offset != self.answered_log_start_offset)

    cdef void note_answer(self, int64_t high_watermark, int64_t log_start_offset) noexcept:
        self.answered_high_watermark = high_watermark
        self.answered_log_start_offset = log_start_offset

    def must_respond(self, int error_code, Py_ssize_t size, int64_t high_watermark, int64_t log_start_offset) -> bool:
        """Whether an incremental answer must name this partition; remembers what it says."""
        cdef bint changed = self.is_changed(size, high_watermark, log_start_offset)
        self.note_answer(high_watermark, log_start_offset)
        if error_code != 0:
            # Named again once the error is over.
            self.answered_high_watermark = -1
            changed = True
        return changed


@cython.nonecheck(True)
cdef PartitionFields partition_to_read(FetchTarget target, dict topics, dict names, bint by_id):
    """The target's partition, and sets the target's topic name; None if it is not led here in the client's epoch, or if
    the client compares epochs."""
    cdef object name
    cdef PartitionFields partition
    if target.max_bytes < 0 or target.refusal != 0:
        return None
    if by_id:
        name = names.get(target.topic_id)
        if name is None:
            return None
        target.topic = name
    partition = led_partition(topics.get(target.topic), target.index, -1)
    if partition is None or not is_plain_read(partition, target.current_leader_epoch, target.last_fetched_epoch):
        return None
    return partition


cpdef bint is_enough(int64_t size, int64_t min_bytes, int64_t max_wait_ms, bint may_wait, bint urgent,
                     bint force) noexcept:
    """Whether a fetch is answered now, with records of `size` bytes: the one rule, for fetches of all kinds.

    `may_wait`: there is a source that may bring more.  `urgent`: something of the answer is to be given at once, as an
    error is.  `force`: the time is up, or the broker stops.
    """
    return force or urgent or size >= min_bytes or max_wait_ms <= 0 or not may_wait


def enter(fetch, tuple sources not None) -> None:
    """Let a fetch wait at each of these sources."""
    cdef RecordSource source
    for source in sources:
        source.waiting[fetch] = None


def leave(fetch, tuple sources not None) -> None:
    """It waits there no longer, wherever it still did."""
    cdef RecordSource source
    for source in sources:
        if fetch in source.waiting:
            del source.waiting[fetch]
