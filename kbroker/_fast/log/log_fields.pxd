from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.log.batch_seek cimport FollowUps
from kbroker._fast.log.index cimport AppendTail
from kbroker._fast.log.producer_table cimport ProducerTable


cdef class AppendRules:
    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t segment_bytes
    cdef bint needs_keys
    cdef int64_t long_bytes
    cdef int64_t expansion_bytes


cdef class FileFields:
    cdef public int fd
    cdef public object pwrite


cdef class SpaceFields:
    cdef public bint closed


cdef class EpochFields:
    cdef public int32_t latest_epoch


cdef class ProducerFields:
    cdef public dict unreplicated
    cdef public dict verifications
    cdef public object first_unstable_offset
    cdef public ProducerTable producers


cdef class SegmentFields:
    cdef public int64_t base_offset
    cdef public int64_t allocated_bytes
    cdef public int64_t roll_after_timestamp
    cdef public AppendTail tail
    cdef FileFields open_file_
    cdef public FollowUps follow_ups
    cdef public bint is_damaged
    cdef public bint indexes_full
    cdef public bint recently_used


cdef class SegmentsFields:
    cdef SegmentFields active_


cdef class LocalLogFields:
    cdef public int64_t log_end_offset
    cdef SegmentsFields segments_
    cdef object environment_


cdef struct Traffic:
    # Of leaders' appends: messages, bytes of batches, batches, and those that were refused.
    int64_t messages_in
    int64_t bytes_in
    int64_t appends
    int64_t failed_appends
    # Bytes of records sent to consumers; fetches that named the partition, and those of them that failed.
    int64_t bytes_out
    int64_t fetches
    int64_t failed_fetches
    # Of records that were refused for a batch above max.message.bytes.
    int64_t bytes_rejected
    # Batches that came to a log and were refused for what Kafka expects: they are no failures.
    int64_t refused_appends


cdef class LogFields:
    cdef Traffic traffic
    cdef public int64_t high_watermark
    cdef public int64_t log_start_offset
    cdef public int64_t local_log_start_offset
    cdef public AppendRules append_rules
    cdef object committer_
    cdef LocalLogFields local_
    cdef SpaceFields space_guard_
    cdef EpochFields leader_epoch_cache_
    cdef ProducerFields producer_state_


cdef class PurgatoryFields:
    cdef public bint due
    cdef public ReadyQueue ready


cdef class RecordSource:
    cdef public dict waiting
    cdef object __weakref__


cdef class LateRead(RecordSource):
    cdef readonly int32_t wait_ms
    cdef public bint is_met


cdef class PartitionFields(RecordSource):
    cdef public int32_t leader_epoch
    cdef public Py_ssize_t min_in_sync
    cdef public tuple isr
    cdef LogFields log_
    cdef public dict followers
    cdef public bint commits_alone
    cdef public bint follower_throttled
    cdef public object purgatory
    cdef uint64_t named_in


# What is committed and what may be acknowledged: each rule once, for the paths in C, and for Python by way of methods
# of `LogFields` and `PartitionFields`.  A partition alone moves the high watermark of its log up, by these.

cdef inline void count_append(LogFields log, int64_t messages, int64_t size) noexcept:
    log.traffic.messages_in += messages
    log.traffic.bytes_in += size
    log.traffic.appends += 1


cdef inline bint raise_high_watermark(LogFields log, int64_t offset) except -1:
    """Moves the high watermark up to `offset`, at most to the log end, and never down.  Whether it moved."""
    if offset > log.local_.log_end_offset:
        offset = log.local_.log_end_offset
    if offset <= log.high_watermark:
        return False
    log.high_watermark = offset
    if len(log.producer_state_.unreplicated) > 0:
        (<object> log.producer_state_).on_high_watermark(offset)
    if CHECKED:
        (<object> log).check_invariants()
    return True


cdef inline bint has_min_isr(PartitionFields partition) except -1:
    """Whether as many replicas are in sync as `min.insync.replicas` asks for: else nothing is committed."""
    return len(partition.isr) >= partition.min_in_sync


cdef inline bint acknowledges(PartitionFields partition, int64_t last_offset, bint by_all) except -1:
    """Whether the batch that ends with `last_offset` may be acknowledged; `by_all`: to a producer with acks=all."""
    if by_all:
        return partition.log_.high_watermark > last_offset
    return partition.log_.committer_ is None or not partition.log_.committer_.holds(last_offset)


cdef inline int after_append(PartitionFields partition) except -1:
    """Commits after an append: here if this replica alone decides and no fsync is awaited, else in `Partition.advance`.
    Marks the waiting fetches if there is something new for them."""
    cdef LogFields log = partition.log_
    cdef bint moved
    if partition.commits_alone and log.committer_ is None:
        moved = raise_high_watermark(log, log.local_.log_end_offset)
        if CHECKED:
            assert has_min_isr(partition), "a commit without min.insync.replicas"
            assert log.high_watermark == log.local_.log_end_offset, "an append without other replicas"
    else:
        (<object> partition).advance()
        # Followers read up to the log end.
        moved = not partition.commits_alone
    if moved and len(partition.waiting) > 0:
        partition.purgatory.mark(partition)
    return 0


# What a client may read.

cdef inline int64_t last_stable_offset(LogFields log) except? -1:
    """The first offset of the oldest open transaction if it lies below the high watermark, else the high watermark."""
    if log.producer_state_.first_unstable_offset is None:
        return log.high_watermark
    return min(log.high_watermark, max(<int64_t> log.producer_state_.first_unstable_offset, log.log_start_offset))


cdef inline int64_t consumer_bound(LogFields log, bint committed) except? -1:
    """Up to where a consumer may read; `committed`: no records of open transactions."""
    return last_stable_offset(log) if committed else log.high_watermark


cdef inline bint is_leader_known(PartitionFields partition, int32_t leader_epoch) noexcept:
    """Whether the partition is led in the epoch that a client names; -1: it names none."""
    return leader_epoch == -1 or leader_epoch == partition.leader_epoch


cdef inline PartitionFields led_partition(object led, int32_t index, int32_t leader_epoch):
    """A partition of those `led` of a topic, if its leader is the one that the client knows; else None."""
    cdef PartitionFields partition = None if led is None else (<dict?> led).get(index)
    if partition is None or not is_leader_known(partition, leader_epoch):
        return None
    return partition
