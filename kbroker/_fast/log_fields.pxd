from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker._fast.batch_seek cimport FollowUps
from kbroker._fast.index cimport AppendTail
from kbroker._fast.producer_table cimport ProducerTable


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


cdef class GateFields:
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
    cdef GateFields gate_
    cdef EpochFields leader_epoch_cache_
    cdef ProducerFields producer_state_


cdef class PurgatoryFields:
    cdef public bint due


cdef class PartitionFields:
    cdef public int32_t leader_epoch
    cdef public Py_ssize_t min_in_sync
    cdef public tuple isr
    cdef LogFields log_
    cdef public dict waiting
    cdef uint64_t named_in


cdef inline PartitionFields led_partition(object led, int32_t index, int32_t leader_epoch):
    """A partition of those `led` of a topic, if its leader is the one that the client knows; else None."""
    cdef PartitionFields partition = None if led is None else (<dict?> led).get(index)
    if partition is None or (leader_epoch >= 0 and leader_epoch != partition.leader_epoch):
        return None
    return partition
