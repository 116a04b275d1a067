from libc.stdint cimport int32_t, int64_t, uint64_t

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


cdef class LogFields:
    cdef public int64_t high_watermark
    cdef public int64_t log_start_offset
    cdef public AppendRules append_rules
    cdef object committer_
    cdef LocalLogFields local_
    cdef SpaceFields space_guard_
    cdef EpochFields leader_epoch_cache_
    cdef ProducerFields producer_state_


cdef class PurgatoryFields:
    cdef public bint due
    cdef public ReadyQueue ready


cdef class PartitionFields:
    cdef public int32_t leader_epoch
    cdef public Py_ssize_t min_in_sync
    cdef public tuple isr
    cdef LogFields log_
    cdef public dict waiting
    cdef public dict followers
    cdef public bint commits_alone
    cdef public bint follower_throttled
    cdef public object purgatory
    cdef uint64_t named_in


cdef inline int after_append(PartitionFields partition) except -1:
    """Moves the high watermark behind an append where this replica alone decides; else `Partition` does."""
    cdef LogFields log = partition.log_
    if (not partition.commits_alone or log.committer_ is not None
            or len(log.producer_state_.unreplicated) > 0):
        (<object> partition).appended()
        return 0
    log.high_watermark = log.local_.log_end_offset
    if len(partition.waiting) > 0:
        partition.purgatory.mark(partition)
    return 0


cdef inline bint is_acknowledged(PartitionFields partition, int64_t last_offset, bint by_all) except -1:
    """Whether the batch that ends with `last_offset` may be acknowledged; `by_all`: to a producer with acks=all."""
    if by_all:
        return partition.log_.high_watermark > last_offset
    return partition.log_.committer_ is None or not partition.log_.committer_.holds(last_offset)


cdef inline PartitionFields led_partition(object led, int32_t index, int32_t leader_epoch):
    """A partition of those `led` of a topic, if its leader is the one that the client knows; else None."""
    cdef PartitionFields partition = None if led is None else (<dict?> led).get(index)
    if partition is None or (leader_epoch != -1 and leader_epoch != partition.leader_epoch):
        return None
    return partition
