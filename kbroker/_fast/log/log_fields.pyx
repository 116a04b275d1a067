"""What the fast paths of append and read look at of a log's objects, as fields of C.

Each class is the base of the one that does the part's work: `LogFields` of `UnifiedLog`, `SegmentFields` of
`LogSegment`, and so on.  Python sees plain attributes.  C reads them without a look-up by name, and reads numbers
without a Python object.  With 10,000 partitions a log's objects are not in the processor's cache when they are needed,
so each object read costs a cache miss.

An attribute whose value holds a descriptor, itself or through others, is set by a property of its own.  The setter that
Cython makes releases the old value before it stores the new one.  Releasing closes a file without the GIL, and another
thread that reads the attribute meanwhile would get the released object.  `_before` holds the old value until then.

Invariant: the base of a finished object has all of its parts; only what is documented as None may be None
(`committer`, `append_rules`, of a segment `tail`, `open_file` and `follow_ups`).
"""

from libc.stdint cimport int64_t


cdef class AppendRules:
    """What a topic's settings ask of a batch that is stored as it is.  Made anew with each change of the settings."""

    def __init__(self, int64_t max_message_bytes, int64_t before_max_ms, int64_t after_max_ms, int64_t segment_bytes,
                 bint needs_keys, int64_t long_bytes, int64_t expansion_bytes):
        """A compressed batch of less than `long_bytes` may expand to `expansion_bytes`; 0 where none is read in C."""
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.segment_bytes = segment_bytes
        self.needs_keys = needs_keys
        self.long_bytes = long_bytes
        self.expansion_bytes = expansion_bytes


cdef class FileFields:
    """Of `SegmentFile`.  -1 is no descriptor.  `pwrite(fd, data, position)`: what writes, None for the system's own."""

    def __cinit__(self):
        self.fd = -1


cdef class SpaceFields:
    """Of `SpaceGuard`."""


cdef class EpochFields:
    """Of `LeaderEpochCache`."""


cdef class ProducerFields:
    """Of `ProducerState`."""


cdef class SegmentFields:
    """Of `LogSegment`."""

    @property
    def open_file(self):
        return self.open_file_

    @open_file.setter
    def open_file(self, FileFields value):
        cdef object _before = self.open_file_
        self.open_file_ = value


cdef class SegmentsFields:
    """Of `LogSegments`."""

    @property
    def active(self):
        return self.active_

    @active.setter
    def active(self, SegmentFields value):
        cdef object _before = self.active_
        self.active_ = value


cdef class LocalLogFields:
    """Of `LocalLog`."""

    @property
    def segments(self):
        return self.segments_

    @segments.setter
    def segments(self, SegmentsFields value):
        cdef object _before = self.segments_
        self.segments_ = value

    @property
    def environment(self):
        return self.environment_

    @environment.setter
    def environment(self, value):
        cdef object _before = self.environment_
        self.environment_ = value


cdef class LogFields:
    """Of `UnifiedLog`."""

    def counted(self) -> tuple:
        """What `Traffic` has, in its order, since the log was opened."""
        cdef Traffic* counts = &self.traffic
        return (counts.messages_in, counts.bytes_in, counts.appends, counts.failed_appends, counts.bytes_out,
                counts.fetches, counts.failed_fetches, counts.bytes_rejected, counts.refused_appends)

    def count_append(self, int64_t messages, int64_t size) -> None:
        """A leader has appended a batch of so many messages and bytes."""
        count_append(self, messages, size)

    def count_failed_append(self) -> None:
        """A producer's batch was refused."""
        self.traffic.failed_appends += 1

    def count_refused_append(self) -> None:
        """A producer's batch was refused for what Kafka does not count as a failure."""
        self.traffic.refused_appends += 1

    def count_too_large(self, int64_t size) -> None:
        """So many bytes of records were refused for a batch above max.message.bytes."""
        self.traffic.bytes_rejected += size

    def count_failed_fetch(self) -> None:
        """A fetch of the partition failed."""
        self.traffic.failed_fetches += 1

    @property
    def last_stable_offset(self) -> int:
        """Up to where a consumer may read that wants no records of open transactions."""
        return last_stable_offset(self)

    def consumer_bound(self, bint committed) -> int:
        """Up to where a consumer may read; `committed`: no records of open transactions."""
        return consumer_bound(self, committed)

    def maybe_increment_high_watermark(self, int64_t offset) -> bool:
        """Moves the high watermark up to `offset`, at most to the log end.  True when it moved."""
        return raise_high_watermark(self, offset)

    @property
    def committer(self):
        return self.committer_

    @committer.setter
    def committer(self, value):
        cdef object _before = self.committer_
        self.committer_ = value

    @property
    def local(self):
        return self.local_

    @local.setter
    def local(self, LocalLogFields value):
        cdef object _before = self.local_
        self.local_ = value

    @property
    def space_guard(self):
        return self.space_guard_

    @space_guard.setter
    def space_guard(self, SpaceFields value):
        cdef object _before = self.space_guard_
        self.space_guard_ = value

    @property
    def leader_epoch_cache(self):
        return self.leader_epoch_cache_

    @leader_epoch_cache.setter
    def leader_epoch_cache(self, EpochFields value):
        cdef object _before = self.leader_epoch_cache_
        self.leader_epoch_cache_ = value

    @property
    def producer_state(self):
        return self.producer_state_

    @producer_state.setter
    def producer_state(self, ProducerFields value):
        cdef object _before = self.producer_state_
        self.producer_state_ = value


cdef class PurgatoryFields:
    """Of `FetchPurgatory`."""


cdef class RecordSource:
    """Where fetches wait for records: a partition, what a share group has of one, or a late read.  `waiting`: the
    fetches."""

    def __cinit__(self):
        self.waiting = {}


cdef class LateRead(RecordSource):
    """The third outcome of a read, beside records and an error: they come later, as those of remote storage do.

    A fetch waits here for `wait_ms` at most, in the place of its own time, and is read again when the read `is_met`
    (`FetchPurgatory.meet`).  At the deadline it is answered without these records.
    """

    def __init__(self, int32_t wait_ms):
        self.wait_ms = wait_ms


cdef class PartitionFields(RecordSource):
    """Of `Partition`.  `commits_alone`: what this replica has durably is committed."""

    @property
    def has_min_isr(self) -> bool:
        """Whether as many replicas are in sync as `min.insync.replicas` asks for."""
        return has_min_isr(self)

    def is_acknowledged(self, int64_t last_offset, *, bint by_all) -> bool:
        """Whether the batch that ends with `last_offset` may be acknowledged; `by_all`: to acks=all."""
        return acknowledges(self, last_offset, by_all)

    def appended(self) -> None:
        """The log is longer: commits what can be, and wakes the fetches that wait for records."""
        after_append(self)

    @property
    def log(self):
        return self.log_

    @log.setter
    def log(self, LogFields value):
        cdef object _before = self.log_
        self.log_ = value
