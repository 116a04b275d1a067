from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.log.log_fields cimport FileFields, LogFields, SegmentFields
from kbroker._fast.requests.fetch_rows cimport Found


cdef SegmentFields find(LogFields log, object file_system, int64_t offset, int64_t limit, bint committed, Found* found)
cdef bint confirm(SegmentFields segment, FileFields file, int64_t offset, int64_t limit, bint at_least_one,
                  Found* found) noexcept
cdef bint note_next(SegmentFields segment, const uint8_t* records, int64_t offset, const Found* found) noexcept
