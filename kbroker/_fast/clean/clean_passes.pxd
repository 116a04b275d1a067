from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.records.layout cimport LOG_OVERHEAD_BYTES
from kbroker._fast.clean.clean_output cimport Bytes
from kbroker._fast.clean.clean_records cimport Entries
from kbroker._fast.base.md5 cimport Message
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.clean.offset_map cimport OffsetMap


cdef enum Stop:
    STOP_END = 0          # nothing, or no whole batch, is left
    STOP_SPECIAL = 1
    STOP_FULL = 2         # no key more goes into the map
    STOP_OVERFLOW = 3     # the batch does not fit the segment that is being written
    STOP_HEADER = 4
    STOP_CRC = 5
    STOP_RECORDS = 6
    STOP_MEMORY = 7
    STOP_ROOM = 8         # what was collected has to be dealt with first

cdef enum Kind:
    PLAIN = -1
    PACKED = -2           # compressed, by a codec that is read here, and nothing else

cdef enum:
    SPECIAL_MASK = 0x37   # COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
    GROUP = 512           # records that are hashed and looked up together, unless one batch has more
    GROUP_BATCHES = 64
    WINDOW = 64

cdef struct Batch:
    Header header
    const uint8_t* data
    Py_ssize_t first      # of its entries
    Py_ssize_t count
    int codec


cdef struct Window:
    Py_ssize_t count
    Py_ssize_t places[WINDOW]     # of entries
    uint8_t digests[WINDOW * 16]
    uint32_t first_slots[WINDOW]
    int64_t slots                 # of the table that these are for


cdef struct State:
    Entries entries
    Batch batches[GROUP_BATCHES]
    int batch_count
    int64_t collected_bytes
    Codecs codecs
    Bytes payloads        # decompressed: what the entries of compressed batches point into
    Message messages[WINDOW]
    Window windows[2]     # one is hashed, and its memory asked for, while the other is looked up
    int fault             # of a header or of records
    Header header         # the last one read
    uint32_t crc
    Py_ssize_t position   # of the next batch


cdef inline int64_t batch_size(const Header* header) noexcept nogil:
    return <int64_t>header.batch_length + LOG_OVERHEAD_BYTES


cdef int read_batch(State* self, const uint8_t* data, Py_ssize_t end) noexcept nogil
cdef int take_batch(State* self, const uint8_t* payload, Py_ssize_t size) noexcept nogil
cdef void begin_group(State* self) noexcept nogil
cdef int collect_batch(State* self, const uint8_t* batch, int kind) noexcept nogil
cdef int put_entries(State* self, OffsetMap offsets, int64_t start_offset) noexcept nogil
cdef int index_plain(State* self, const uint8_t* data, Py_ssize_t end, OffsetMap offsets, int64_t start) noexcept nogil
cdef void decide(State* self, OffsetMap offsets) noexcept nogil
