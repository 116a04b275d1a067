"""What fetches ask of each partition, which of those are worth a look, and who waits at the others.

A consumer of many partitions has records in few of them at a time: whoever stands at the end of a log is found out with
a handful of fields, without an answer for that partition.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kbroker._fast.log.log_fields cimport LogFields, PartitionFields, led_partition


cdef class FetchTarget:
    """What a fetch asks of one partition, and in a session what was last told of it.

    `topic` is the name the client used, or the name behind its topic id (None while no topic has that id).
    `log_start_offset`: where the log of a follower starts, -1 for a consumer.
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
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def update(self, FetchTarget newer not None) -> None:
        """Take over what a later fetch of the session asks for; what was told stays."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    cdef void exchange(self, FetchTarget other) noexcept:
        """Ask for what `other` asked for, and the other way round; twice, and nothing has changed."""
        self.fetch_offset, other.fetch_offset = other.fetch_offset, self.fetch_offset
        self.max_bytes, other.max_bytes = other.max_bytes, self.max_bytes
        self.current_leader_epoch, other.current_leader_epoch = other.current_leader_epoch, self.current_leader_epoch
        self.last_fetched_epoch, other.last_fetched_epoch = other.last_fetched_epoch, self.last_fetched_epoch

    cdef bint is_news(self, Py_ssize_t size, int64_t high_watermark, int64_t log_start_offset) noexcept:
        return (size > 0 or high_watermark != self.told_high_watermark
                or log_start_offset != self.told_log_start_offset)

    cdef void tell(self, int64_t high_watermark, int64_t log_start_offset) noexcept:
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset

    def has_news(self, int error_code, Py_ssize_t size, int64_t high_watermark, int64_t log_start_offset) -> bool:
        """Whether an incremental answer must name this partition; remembers what it tells."""
        cdef bint news = self.is_news(size, high_watermark, log_start_offset)
        self.tell(high_watermark, log_start_offset)
        if error_code != 0:
            # Told again once the error is over.
            self.told_high_watermark = -1
            news = True
        return news


@cython.nonecheck(True)
cdef PartitionFields place(FetchTarget target, dict topics, dict names, bint by_id):
    """Its partition, whose name it has then; None where an error is to be told, or where the epochs are compared."""
    cdef object name
    if target.last_fetched_epoch >= 0 or target.max_bytes < 0:
        return None
    if by_id:
        name = names.get(target.topic_id)
        if name is None:
            return None
        target.topic = name
    return led_partition(topics.get(target.topic), target.index, target.current_leader_epoch)


@cython.nonecheck(True)
cdef PartitionFields resting_place(FetchTarget target, dict topics, dict names, bint by_id):
    """The partition, if the reader stands at its end and nothing else is to be said but that; else None."""
    cdef PartitionFields partition = place(target, topics, names, by_id)
    cdef LogFields log
    if partition is None:
        return None
    log = partition.log_
    return partition if target.fetch_offset == log.high_watermark else None


cpdef tuple worth_reading(targets, dict topics, dict names, bint by_id, bint only_news):
    """(the targets that have to be read, the partitions of the others, at whose ends their readers stand).

    With `only_news`, as an incremental fetch has it, a target also has to be read when what was last told of its
    partition does not hold any more; without, `targets` at the end of their logs are among the others in any case.
    """
    cdef FetchTarget target
    cdef PartitionFields partition
    cdef list read = []
    cdef list others = []
    for target in targets:
        partition = resting_place(target, topics, names, by_id)
        if partition is None:
            read.append(target)
            continue
        if only_news and target.is_news(0, partition.log_.high_watermark, partition.log_.log_start_offset):
            read.append(target)
        else:
            others.append(partition)
    return read, others


def enter(fetch, tuple partitions not None) -> None:
    """Let a fetch wait at each of these partitions."""
    cdef PartitionFields partition
    for partition in partitions:
        partition.waiting[fetch] = None


def leave(fetch, tuple partitions not None) -> None:
    """It waits there no longer, wherever it still did."""
    cdef PartitionFields partition
    for partition in partitions:
        if fetch in partition.waiting:
            del partition.waiting[fetch]
