"""Recovery's reading of a segment: every batch's header and checksum, without the GIL.

`scan_segment` reads the file through one buffer of its own (a batch larger than it makes it grow, up to the size that
the file really has left), and stops at the first byte that is no valid batch: what lies behind it is not trusted, as
in Kafka.  It reads by `pread`, so the descriptor's position stays.

What it found stays in C until it is asked for: `segment_replay` counts and indexes batches from there, `batches` makes
an object of each.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from kbroker._fast.files.system_calls cimport system_calls
from kbroker._fast.records.batch_info cimport HEADER_OK, HEADER_TRUNCATED, BatchInfo, Header, header_error, make_info
from kbroker._fast.records.layout cimport LOG_OVERHEAD_BYTES, RECORDS_POSITION
from kbroker._fast.records.stored_header cimport parse_stored_header, stored_checksum


cdef enum:
    BUFFER_BYTES = 1048576
    # Where headers alone are wanted, batches from this size on are passed over: one read for each, of a page.
    PASSED_OVER_BYTES = 8192
    PAGE_BYTES = 4096

cdef enum Stop:
    STOP_END = 0          # nothing left
    STOP_FULL = 1         # as many batches as asked for
    STOP_HEADER = 2       # a header that is none, or a batch cut off: `fault`
    STOP_CRC = 3
    STOP_IO = 4
    STOP_MEMORY = 5
    STOP_ORDER = 6        # a base offset not past the last one


cdef struct Scan:
    int fd
    bint check_crc
    int64_t position      # of the next batch
    int64_t end
    uint8_t* buffer
    int64_t capacity
    int64_t at_once       # so much is read by one call
    int64_t start         # file position of buffer[0]
    int64_t filled
    Found* found
    int64_t count
    int64_t room
    int stop
    int fault
    int system_error
    uint32_t crc
    Header header         # the last one read
    int64_t next_offset


cdef bint fill(Scan* self, int64_t size) noexcept nogil:
    """Brings the `size` bytes at `position` into the buffer; fewer come only when the file ends."""
    cdef ssize_t got
    cdef int64_t wanted
    cdef uint8_t* larger
    if self.position >= self.start and self.position + size <= self.start + self.filled:
        return True
    if size > self.capacity:
        larger = <uint8_t*>realloc(self.buffer, <size_t>size)
        if larger == NULL:
            self.stop = STOP_MEMORY
            return False
        self.buffer = larger
        self.capacity = size
    # What is there of the next batch is kept.
    if self.start < self.position < self.start + self.filled:
        self.filled -= self.position - self.start
        memmove(self.buffer, self.buffer + (self.position - self.start), <size_t>self.filled)
    elif self.position != self.start:
        self.filled = 0
    self.start = self.position
    wanted = min(max(size, self.at_once), self.capacity)
    while self.filled < wanted and self.start + self.filled < self.end:
        got = system_calls.pread(
            self.fd,
            self.buffer + self.filled,
            <size_t>min(wanted - self.filled, self.end - self.start - self.filled),
            self.start + self.filled,
        )
        if got < 0:
            if errno == EINTR:
                continue
            self.stop = STOP_IO
            self.system_error = errno
            return False
        if got == 0:
            self.end = self.start + self.filled
            break
        self.filled += got
    return True


cdef bint take_batch(Scan* self) noexcept nogil:
    """Judges the batch at `position` and goes past it; False with `stop` set when there is none."""
    cdef const uint8_t* data
    cdef int64_t left = self.end - self.position
    cdef int64_t size
    if left <= 0:
        self.stop = STOP_END
        return False
    if not fill(self, min(left, <int64_t>RECORDS_POSITION)):
        return False
    if self.end <= self.position:
        self.stop = STOP_END
        return False
    data = self.buffer + (self.position - self.start)
    # The whole batch may not be in the buffer yet; the header tells how much there has to be.
    self.fault = parse_stored_header(data, self.end - self.position, &self.header)
    if self.fault != HEADER_OK:
        self.stop = STOP_HEADER
        return False
    size = <int64_t>self.header.batch_length + LOG_OVERHEAD_BYTES
    if self.count and self.header.base_offset < self.next_offset:
        self.stop = STOP_ORDER
        return False
    if self.check_crc:
        if not fill(self, size):
            return False
        if self.end - self.position < size:
            self.fault = HEADER_TRUNCATED
            self.stop = STOP_HEADER
            return False
        data = self.buffer + (self.position - self.start)
        self.crc = stored_checksum(data, &self.header)
        if self.crc != self.header.crc:
            self.stop = STOP_CRC
            return False
    else:
        self.at_once = PAGE_BYTES if size >= PASSED_OVER_BYTES else self.capacity
    self.found[self.count].header = self.header
    self.found[self.count].position = self.position
    self.count += 1
    self.next_offset = self.header.base_offset + self.header.last_offset_delta + 1
    self.position += size
    return True


cdef void run(Scan* self) noexcept nogil:
    self.stop = STOP_END
    while take_batch(self):
        if self.count == self.room:
            self.stop = STOP_END if self.position >= self.end else STOP_FULL
            return


cdef class SegmentScan:
    """What a scan found.

    `batches`: BatchInfo, each with its position in the file; `valid_end`: the position behind the last good batch;
    `complete`: nothing is left to scan (the end was reached, or something bad); `reason`: what is bad at `valid_end`,
    None when nothing is.  `len()` is the number of batches, and an index gives one of them.
    """

    def __cinit__(self):
        self.found = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.found)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t at):
        if at < 0 or at >= self.count:
            raise IndexError(f"batch {at} of {self.count}")
        return self.info(at)

    cdef BatchInfo info(self, Py_ssize_t at):
        return make_info(&self.found[at].header, self.found[at].position)

    @property
    def batches(self):
        cdef Py_ssize_t at
        return [self.info(at) for at in range(self.count)]


cdef object reason_of(const Scan* self):
    if self.stop == STOP_HEADER:
        return str(header_error(self.fault, &self.header, self.end - self.position))
    if self.stop == STOP_CRC:
        return f"Record is corrupt (stored crc = {self.header.crc}, computed crc = {self.crc})"
    if self.stop == STOP_ORDER:
        return (
            f"base offset {self.header.base_offset} is not past the batch before it, which ends before "
            f"{self.next_offset}"
        )
    return None


def scan_segment(int fd, int64_t start_pos, int64_t end_pos, *, bint check_crc=True, int max_batches=65536):
    """The batches of a segment file between two positions; at most `max_batches`, so that memory stays bounded.

    Call again from `valid_end` until `complete`.  OSError when the file cannot be read.
    """
    cdef Scan scan
    cdef SegmentScan result = SegmentScan.__new__(SegmentScan)
    if start_pos < 0 or end_pos < start_pos or max_batches < 1:
        raise ValueError(f"cannot scan positions {start_pos} to {end_pos} for {max_batches} batches")
    scan.fd = fd
    scan.check_crc = check_crc
    scan.position = start_pos
    scan.end = end_pos
    scan.start = start_pos
    scan.filled = 0
    scan.count = 0
    scan.room = max_batches
    scan.next_offset = 0
    scan.system_error = 0
    scan.capacity = min(max(end_pos - start_pos, <int64_t>4096), <int64_t>BUFFER_BYTES)
    scan.at_once = scan.capacity
    scan.buffer = <uint8_t*>malloc(<size_t>scan.capacity)
    scan.found = <Found*>malloc(max_batches * sizeof(Found))
    try:
        if scan.buffer == NULL or scan.found == NULL:
            raise MemoryError
        with nogil:
            run(&scan)
        if scan.stop == STOP_IO:
            raise OSError(scan.system_error, f"reading at position {scan.position}")
        if scan.stop == STOP_MEMORY:
            raise MemoryError
        # The object keeps the batches and frees them; usually far fewer were found than there was room for.
        result.found = <Found*>realloc(scan.found, <size_t>max(scan.count, 1) * sizeof(Found))
        if result.found == NULL:
            raise MemoryError
        scan.found = NULL
        result.count = scan.count
        result.valid_end = scan.position
        result.complete = scan.stop != STOP_FULL
        result.reason = reason_of(&scan)
        return result
    finally:
        free(scan.buffer)
        free(scan.found)
