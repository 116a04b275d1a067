"""The ordinary append in one call: judge a batch, give it its offsets, write it, count it.

Most batches are a producer's, uncompressed or in lz4 or zstd and not long, fit to be stored as they are, for a log
whose active segment has room.  Those are appended here; for whatever is out of the ordinary the answer is -1, nothing
has been changed, and the way through `UnifiedLog.append_as_leader` does the rest, errors included.

Reads attributes of the log's objects by name: it knows their meaning, not their types.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._fast.batch_info import BatchError
from kbroker._fast.record_batch import validate

from kbroker._fast.batch_info cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    COMPRESSION_MASK,
    LOG_OVERHEAD_BYTES,
    PARTITION_LEADER_EPOCH_POSITION,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
    BatchInfo,
)
from kbroker._fast.big_endian cimport kb_store32, kb_store64
from kbroker._fast.compressed_walk cimport walk_compressed
from kbroker._fast.index cimport AppendTail
from kbroker._fast.native_codecs cimport serves
from kbroker._fast.producer_table cimport ProducerTable

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pwrite "pwrite"(int fd, const void* buffer, size_t count, int64_t offset)

cdef enum:
    OUT_OF_THE_ORDINARY = -1
    FIRST_VERSION_WITH_ZSTD = 7
    FIRST_VERSION_WITH_TOPIC_IDS = 13
    STAMPED_BYTES = 16          # base offset, length and leader epoch: what an append writes into a header
    # From this size on other threads may run meanwhile; below it is shorter than handing them the interpreter.
    RELEASE_GIL_BYTES = 131072


cdef class AppendRules:
    """What a topic's settings ask of an ordinary batch.  Made anew with each change of the settings."""

    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t segment_bytes
    cdef bint needs_keys
    cdef int64_t long_bytes
    cdef int64_t expansion_bytes

    def __init__(self, int64_t max_message_bytes, int64_t before_max_ms, int64_t after_max_ms, int64_t segment_bytes,
                 bint needs_keys, int64_t long_bytes, int64_t expansion_bytes):
        """A compressed batch of less than `long_bytes` may expand to `expansion_bytes`; 0 where none is ordinary."""
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.segment_bytes = segment_bytes
        self.needs_keys = needs_keys
        self.long_bytes = long_bytes
        self.expansion_bytes = expansion_bytes


cdef class OrdinaryProduce:
    """A produce request of one batch, for acks 1 and all.

    `response`, `topic_response` and `partition_response` are the structs of the answer; `internal` are the topics that
    not everybody may write to.
    """

    cdef object response
    cdef object topic_response
    cdef object partition_response
    cdef frozenset internal

    def __init__(self, response, topic_response, partition_response, frozenset internal):
        self.response = response
        self.topic_response = topic_response
        self.partition_response = partition_response
        self.internal = internal

    def serve(self, ctx, request):
        """The answer, once the batch is appended and who waits for it is woken; None where anything else is to be done.

        The services give the partitions that are led (`replica_manager.topics`, `.names`) and the time.
        """
        cdef list topics = request.topic_data
        cdef list batches
        cdef object topic, batch, manager, name, partition, log, answer, first
        cdef int acks = request.acks
        if len(topics) != 1 or (acks != 1 and acks != -1) or ctx.api_version < FIRST_VERSION_WITH_ZSTD:
            return None
        topic = topics[0]
        batches = topic.partition_data
        if len(batches) != 1:
            return None
        services = ctx.services
        manager = services.replica_manager
        name = topic.name if ctx.api_version < FIRST_VERSION_WITH_TOPIC_IDS else manager.names.get(topic.topic_id)
        led = manager.topics.get(name)
        if led is None or name in self.internal:
            return None
        batch = batches[0]
        partition = (<dict?> led).get(batch.index)
        if partition is None or (acks < 0 and len(partition.isr) < <Py_ssize_t> partition.min_in_sync):
            return None
        log = partition.log
        first = append_ordinary(log, batch.records, partition.leader_epoch, services.clock.now_ms())
        if <int64_t> first < 0:
            return None
        if partition.waiting:
            manager.purgatory.mark(partition)
        answer = self.partition_response(index=batch.index, base_offset=first, log_start_offset=log.log_start_offset)
        topic = self.topic_response(name=name, topic_id=topic.topic_id, partition_responses=[answer])
        return self.response(responses=[topic])


cpdef object append_ordinary(log, records, int32_t leader_epoch, int64_t now_ms):
    """Appends the one batch in `records` (writable) and moves the high watermark: its base offset, or -1.

    What costs nothing to see comes first: a batch for which there is no room goes the general way without having been
    read here.
    """
    cdef AppendRules rules = log.append_rules
    cdef BatchInfo info
    cdef int codec
    if (
        rules is None or records is None or log.committer is not None or log.gate.closed
        or leader_epoch != <int32_t> log.leader_epoch_cache.latest_epoch
        or log.producer_state.unreplicated
        or not has_room(log.local.segments.active, rules, len(records))
    ):
        return OUT_OF_THE_ORDINARY
    codec = ordinary_codec(records, rules)
    if codec < 0:
        return OUT_OF_THE_ORDINARY
    try:
        info = validate(records)
    except BatchError:
        return OUT_OF_THE_ORDINARY
    if (
        <int64_t> info.header.batch_length + LOG_OVERHEAD_BYTES != <int64_t> len(records)
        or (codec and not walk_compressed(info, records, rules.expansion_bytes))
        or (rules.needs_keys and info.keyless_count)
        or not info.fits(now_ms, rules.before_max_ms, rules.after_max_ms)
    ):
        return OUT_OF_THE_ORDINARY
    return _append(log, records, info, leader_epoch)


cdef bint has_room(segment, AppendRules rules, int64_t size) except -1:
    """Whether a batch may have so many bytes, and the active segment takes it as it is."""
    cdef object tail = segment.tail
    cdef int64_t end
    if tail is None or segment.open_file is None or segment.indexes_full or size > rules.max_message_bytes:
        return False
    end = (<AppendTail?> tail).size + size
    return end <= rules.segment_bytes and end <= <int64_t> segment.allocated_bytes


cdef int ordinary_codec(records, AppendRules rules) except -2:
    """0 to 4, or -1 for a batch that is not ordinary, transactional for example: by the header alone, whose checksum
    nobody has looked at yet."""
    cdef Py_buffer view
    cdef int attributes
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    attributes = (<uint8_t*> view.buf)[ATTRIBUTES_POSITION + 1] if view.len > RECORDS_POSITION else -1
    PyBuffer_Release(&view)
    if attributes < 0 or attributes & TRANSACTIONAL_MASK:
        return OUT_OF_THE_ORDINARY
    attributes &= COMPRESSION_MASK
    if attributes and not (serves(attributes) and view.len < rules.long_bytes and rules.expansion_bytes):
        return OUT_OF_THE_ORDINARY
    return attributes


cdef object _append(log, records, BatchInfo info, int32_t leader_epoch):
    cdef object local = log.local
    cdef object segment = local.segments.active
    cdef object state = log.producer_state
    cdef object file = segment.open_file
    cdef ProducerTable producers = state.producers
    cdef AppendTail tail = segment.tail
    cdef int64_t first = local.log_end_offset
    cdef int64_t last = first + info.header.last_offset_delta
    cdef int64_t size = <int64_t> info.header.batch_length + LOG_OVERHEAD_BYTES
    cdef int64_t position = tail.size
    if (
        file is None
        or info.header.max_timestamp > <int64_t> segment.roll_after_timestamp
        or last - <int64_t> segment.base_offset > INT32_MAX
    ):
        return OUT_OF_THE_ORDINARY
    if info.header.producer_id >= 0 and (state.verifications or not producers.follows(info)):
        return OUT_OF_THE_ORDINARY
    if not _write(file.fd, records, position, size, first, leader_epoch):
        segment.cut_failed_write(file, position)
        return OUT_OF_THE_ORDINARY
    segment.recently_used = True
    if tail.take(first, last, size, info.header.max_timestamp):
        segment.index_batch(tail, last, position)
    local.log_end_offset = last + 1
    if info.header.producer_id >= 0:
        producers.remember(info, first, last)
    if last >= <int64_t> log.high_watermark:
        log.high_watermark = last + 1
    return first


cdef bint _write(int fd, records, int64_t position, int64_t size, int64_t first, int32_t leader_epoch) except -1:
    """Stamps the batch and writes it.  False when not all of it was written: the batch is as it was before then."""
    cdef Py_buffer view
    cdef uint8_t before[STAMPED_BYTES]
    cdef uint8_t* data
    cdef ssize_t written
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if view.len != size:
            raise ValueError(f"{view.len} bytes for a batch of {size}")
        data = <uint8_t*> view.buf
        memcpy(before, data, STAMPED_BYTES)
        kb_store64(data + BASE_OFFSET_POSITION, <uint64_t> first)
        kb_store32(data + PARTITION_LEADER_EPOCH_POSITION, <uint32_t> leader_epoch)
        if size >= RELEASE_GIL_BYTES:
            with nogil:
                written = c_pwrite(fd, data, size, position)
        else:
            written = c_pwrite(fd, data, size, position)
        if written == size:
            return True
        memcpy(data, before, STAMPED_BYTES)
        return False
    finally:
        PyBuffer_Release(&view)
