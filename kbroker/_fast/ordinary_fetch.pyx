"""The ordinary read and the ordinary fetch, each in one call.

Most fetches go on where the one before ended, in a log without open transactions whose records are all visible.  Those
are served here; for whatever is out of the ordinary the answer is None, nothing has been changed, and the handler in
Python serves it, errors included.  What is ordinary gets the answer that the handler would give.

Reads attributes of the log's objects by name: it knows their meaning, not their types.
"""

from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.batch_seek cimport HEADER_BYTES, SEEN, FollowUps, Seen, see
from kbroker._fast.file_region cimport FileRegion
from kbroker._fast.index cimport AppendTail, TailBatch, load64

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)

cdef enum:
    READ_COMMITTED = 1
    FINAL_EPOCH = -1
    FIRST_VERSION_WITH_TOPIC_IDS = 13
    FIRST_VERSION_WITH_REPLICA_STATE = 15


cdef class OrdinaryFetch:
    """`partition_data`, `topic_response` and `response` are the structs of the answer.

    `file_system`: the type whose calls may be made here directly; logs on any other are never ordinary.
    """

    cdef object response
    cdef object topic_response
    cdef object partition_data
    cdef object file_system

    def __init__(self, response, topic_response, partition_data, file_system):
        self.response = response
        self.topic_response = topic_response
        self.partition_data = partition_data
        self.file_system = file_system

    def serve(self, ctx, request):
        """The answer to a fetch of one partition without a session; None where anything else is to be done."""
        cdef list topics = request.topics
        cdef list partitions
        cdef object manager, reader, topic, wanted, partition, topic_id, answer
        cdef int64_t limit, most, epoch
        cdef int isolation = request.isolation_level
        cdef int version = ctx.api_version
        if len(topics) != 1 or request.session_epoch != FINAL_EPOCH or request.session_id != 0 or isolation & ~1:
            return None
        topic = topics[0]
        partitions = topic.partitions
        if len(partitions) != 1:
            return None
        reader = request if version < FIRST_VERSION_WITH_REPLICA_STATE else request.replica_state
        if reader.replica_id >= 0:
            return None
        services = ctx.services
        manager = services.replica_manager
        topic_id = topic.topic_id
        name = manager.names.get(topic_id) if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        led = manager.topics.get(name)
        if led is None:
            return None
        wanted = partitions[0]
        partition = (<dict?> led).get(wanted.partition)
        if partition is None:
            return None
        epoch = wanted.current_leader_epoch
        if (epoch >= 0 and epoch != partition.leader_epoch) or wanted.last_fetched_epoch >= 0:
            return None
        most = min(<int64_t> request.max_bytes, <int64_t> services.fetch_max_bytes)
        limit = min(<int64_t> wanted.partition_max_bytes, most)
        answer = self._read(
            partition.log, wanted.partition, wanted.fetch_offset, limit, True, isolation == READ_COMMITTED)
        if answer is None or len(answer.records) < min(<int64_t> request.min_bytes, most):
            return None
        topic = self.topic_response(topic=name, topic_id=topic_id, partitions=[answer])
        return self.response(responses=[topic])

    def read(self, log, index, int64_t offset, int64_t limit, bint at_least_one, bint committed):
        """The answer of one partition with records from `offset` on, at most `limit` bytes of them; or None.

        With `at_least_one` the first batch comes whole, whatever its size.  `committed`: no records of transactions
        that are open or were aborted.
        """
        return self._read(log, index, offset, limit, at_least_one, committed)

    cdef object _read(self, log, index, int64_t offset, int64_t limit, bint at_least_one, bint committed):
        cdef object local = log.local
        cdef object end_offset = local.log_end_offset
        cdef object high_watermark = log.high_watermark
        cdef object start_offset = log.log_start_offset
        cdef object segments, segment, file
        cdef int64_t position, size, end
        cdef const TailBatch* batch
        if limit < 0 or high_watermark != end_offset or offset < <int64_t> start_offset:
            return None
        if offset >= <int64_t> end_offset or log.producer_state.first_unstable_offset is not None:
            return None
        if type(local.environment.files) is not self.file_system:
            return None
        segments = local.segments
        segment = segments.active
        if offset < <int64_t> segment.base_offset:
            if committed:
                return None     # a transaction may have been aborted in a later segment
            segment = segments.floor(offset)
            if segment is None:
                return None
        elif committed and segment.has_txn_index:
            return None
        file = segment.file()
        tail = segment.tail
        batch = NULL
        if tail is not None:
            batch = (<AppendTail?> tail).batch_of(offset)
            end = (<AppendTail> tail).size
        else:
            end = segment.size
        if batch != NULL:
            position = batch.position
            size = batch.size
        else:
            size = self._next_batch(segment, file.fd, offset, end, &position)
            if size < 0:
                return None
        if size > limit:
            if not at_least_one:
                return None
            limit = size
        return self.partition_data(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=start_offset,
            aborted_transactions=[] if committed else None,
            records=FileRegion(file.fd, position, min(limit, end - position), file),
        )

    cdef int64_t _next_batch(self, segment, int fd, int64_t offset, int64_t end, int64_t* position) except? -2:
        """The size of the batch that begins with or holds `offset`, and its position; -1 when that takes a look-up."""
        cdef uint8_t header[HEADER_BYTES]
        cdef Seen seen
        cdef ssize_t got
        follow_ups = segment.follow_ups
        if follow_ups is None:
            return -1
        position[0] = (<FollowUps?> follow_ups).position_of(offset)
        if position[0] < 0 or position[0] >= end:
            return -1
        got = pread(fd, header, HEADER_BYTES, position[0])
        if got != HEADER_BYTES or see(header, got, &seen) != SEEN:
            return -1
        if seen.last < offset or seen.size > end - position[0] or load64(header) > seen.last:
            return -1
        (<FollowUps> follow_ups).add(seen.last + 1, position[0] + seen.size)
        return seen.size
