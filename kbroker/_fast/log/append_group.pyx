"""Batches that came together for one log, written by one system call; several such groups, by several processors.

The cost of a write into the page cache is mostly per page.  A write of 16 KB takes small pages, each of which is found,
locked and counted; a write of ten such batches takes large ones, in half the time, and later reads are cheaper.

Either every valid batch of a group is written, or none: when the write fails, log and batches are as they were before.
Three steps: what needs Python's objects (`begin`, `add`), what helper threads may do (`do_group`), and Python's objects
again (`finish`).
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.files.system_calls cimport iovec, system_calls
from kbroker._fast.log.append_steps cimport ask_for_fsync, count_in
from kbroker._fast.log.batch_rules cimport check_batch, rules_at
from kbroker._fast.log.fast_append cimport RELEASE_GIL_BYTES, check_sequence, checked_header, ends_at, write_by
from kbroker._fast.log.log_fields cimport count_append
from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.records.layout cimport COMPRESSION_MASK, STAMPED_BYTES
from kbroker._fast.records.native_payloads cimport borrow_codecs
from kbroker._fast.records.record_batch cimport stamp_at

cdef enum:
    # So many bytes are worth calling another thread for.  With less zstd batches of 150 records called it, and lost.
    BYTES_FOR_A_HELPER = 98304

# What each worker decompresses with, for good once it is needed.
cdef (Codecs*)[MOST_WORKERS] codecs_of


cdef void check_group(Group* self, Codecs* codecs) noexcept nogil:
    """Gives the batches that are in order their offsets."""
    cdef int64_t offset = self.first_offset
    cdef Member* member
    cdef int index
    for index in range(self.count):
        member = &self.members[index]
        member.offset = -1
        if check_batch(&self.rules, member.data, member.size, member.header, &member.walk, codecs):
            member.offset = offset
            offset += <int64_t> member.header.last_offset_delta + 1
            self.wanted += member.size


cdef int stamp_group(Group* self, iovec* pieces) noexcept nogil:
    """Stamps what is to be written, which `pieces` names then; how many they are."""
    cdef int count = 0
    cdef Member* member
    cdef int index
    for index in range(self.count):
        member = &self.members[index]
        if member.offset < 0:
            continue
        memcpy(member.before, member.data, STAMPED_BYTES)
        stamp_at(member.data, member.offset, self.leader_epoch)
        pieces[count].iov_base = member.data
        pieces[count].iov_len = member.size
        count += 1
    return count


cdef void write_group(Group* self) noexcept nogil:
    """Stamps and writes them; they are as they were before where that fails."""
    cdef iovec[GROUP_BATCHES] pieces
    if self.wanted == 0:
        return
    self.written = system_calls.pwritev(self.fd, pieces, stamp_group(self, pieces), self.position)
    if self.written != self.wanted:
        take_back_stamps(self)


cdef void take_back_stamps(Group* self) noexcept nogil:
    cdef Member* member
    cdef int index
    for index in range(self.count):
        member = &self.members[index]
        if member.offset >= 0:
            memcpy(member.data, member.before, STAMPED_BYTES)


cdef void do_group(void* item, int worker) noexcept nogil:
    check_group(<Group*> item, codecs_of[worker])
    write_group(<Group*> item)


cdef class AppendGroup:
    """`begin`, `add` for each batch, `write_groups`, `finish`.  The bytes of the batches are the caller's, and stay."""

    def __cinit__(self):
        self.infos = []

    cdef bint begin(self, LogFields log, int32_t leader_epoch, int64_t now_ms) except -1:
        """False for a log that has no active segment with an open file."""
        cdef Group* group = &self.group
        self.clear()
        if log is None or log.local_ is None or log.local_.segments_ is None or log.append_rules is None:
            return False
        self.segment = log.local_.segments_.active_
        if self.segment is None or self.segment.tail is None or self.segment.open_file_ is None:
            return False
        self.log = log
        # Held, so that the descriptor stays open, even if the segment gives it up meanwhile.
        self.file = self.segment.open_file_
        group.rules = rules_at(log.append_rules, now_ms)
        group.leader_epoch = leader_epoch
        group.fd = self.file.fd
        group.first_offset = self.next_offset = log.local_.log_end_offset
        group.position = self.segment.tail.size
        return True

    cdef bint add(self, uint8_t* data, Py_ssize_t size, bint transactional) except -1:
        """Takes a batch if its header qualifies for the fast path and it fits behind those before it; else returns
        False and leaves it alone.  Its records are checked later."""
        cdef int count = self.group.count
        cdef Member* member = &self.group.members[count]
        cdef BatchInfo info
        if count == GROUP_BATCHES:
            return False
        info = checked_header(
            self.log, data, size, self.group.leader_epoch, self.next_offset, self.group.position + self.total,
            transactional,
        )
        if info is None or self._knows_producer(&info.header) or not check_sequence(self.log, info):
            return False
        self.infos.append(info)
        member.data = data
        member.size = size
        member.header = &info.header
        self.group.count += 1
        self.compressed = self.compressed or info.header.attributes & COMPRESSION_MASK
        self.next_offset += <int64_t> info.header.last_offset_delta + 1
        self.total += size
        return True

    cdef bint _knows_producer(self, const Header* header):
        """Whether this group has a batch of the same producer: the next sequence is known only once that batch is
        written."""
        cdef int index
        if header.producer_id >= 0:
            for index in range(self.group.count):
                if self.group.members[index].header.producer_id == header.producer_id:
                    return True
        return False

    cdef bint is_current(self):
        """Whether the log is as it was at the beginning."""
        return self.segment.open_file_ is self.file and self._is_at_the_end()

    cdef bint _is_at_the_end(self):
        """As `is_current`, after the write, when the segment may no longer have the file that is held here."""
        return not self.log.space_guard_.closed and ends_at(
            self.log.local_, self.segment, self.group.position, self.group.first_offset
        )

    cdef int _write_by_hook(self) except -1:
        """`write_group` to files that are not the system's own, which see one write."""
        cdef iovec[GROUP_BATCHES] pieces
        cdef int index
        if self.group.wanted == 0:
            return 0
        data = b"".join([
            PyBytes_FromStringAndSize(<const char*> pieces[index].iov_base, pieces[index].iov_len)
            for index in range(stamp_group(&self.group, pieces))
        ])
        self.group.written = write_by(self.file, data, self.group.position)
        if self.group.written != self.group.wanted:
            take_back_stamps(&self.group)
        return 0

    cdef bint finish(self) except -1:
        """Counts in what was written, whose members have their offsets then.  False when nothing was."""
        cdef Member* member
        cdef BatchInfo info
        cdef int index
        if self.group.written == NOT_TRIED:
            return False
        if self.group.written != self.group.wanted or not self._is_at_the_end():
            self.undo()
            return False
        self.group.written = NOT_TRIED
        try:
            for index in range(self.group.count):
                member = &self.group.members[index]
                if member.offset >= 0:
                    info = self.infos[index]
                    info.take_walk(&member.walk)
                    count_in(self.log, self.segment, info, member.offset, member.size, None, True)
                    count_append(self.log, <int64_t> member.header.last_offset_delta + 1, member.size)
        except BaseException:
            (<object> self.segment).cut_failed_write(self.file, self.group.position)
            raise
        if CHECKED:
            assert self.segment.tail.size == self.group.position + self.group.wanted, "bytes written and not counted"
            assert self.log.local_.log_end_offset <= self.next_offset, "an offset that no batch was given"
        ask_for_fsync(self.log)
        return True

    cdef int undo(self) except -1:
        """Cuts bytes that were written, wholly or in part, but not counted in: after a crash they must not pass for
        records."""
        if self.group.written == NOT_TRIED:
            return 0
        if self.group.written == self.group.wanted:
            take_back_stamps(&self.group)
        self.group.written = NOT_TRIED
        (<object> self.segment).cut_failed_write(self.file, self.group.position)
        return 0

    cdef void clear(self):
        self.log = None
        self.segment = None
        self.file = None
        self.infos.clear()
        self.compressed = False
        self.total = 0
        self.group.count = 0
        self.group.wanted = 0
        self.group.written = NOT_TRIED


cdef enum:
    NOT_TRIED = -2


@cython.nonecheck(True)
cdef int write_groups(list groups, int count, HelperPool helper_pool) except -1:
    """Checks and writes the first `count` groups, with helper threads where there is much to do.

    Others may run Python only while a single long group is written.
    """
    cdef (void*)[GROUP_BATCHES] items
    cdef AppendGroup group
    cdef int pieces = 0
    cdef int64_t total = 0
    cdef int index
    if count > GROUP_BATCHES:
        raise ValueError(f"{count} groups are more than {GROUP_BATCHES}")
    for index in range(count):
        group = groups[index]
        if group.compressed:
            provide_codecs(1 + max(helper_pool.limit, helper_pool.running))
    for index in range(count):
        group = groups[index]
        if group.total and group.is_current():
            if group.file.pwrite is not None:
                check_group(&group.group, codecs_of[0])
                group._write_by_hook()
                continue
            items[pieces] = &group.group
            pieces += 1
            total += group.total
    if pieces == 0:
        return 0
    if count == 1 and total >= RELEASE_GIL_BYTES:
        check_group(&group.group, codecs_of[0])
        with nogil:
            write_group(&group.group)
        return 0
    helper_pool.share(do_group, items, pieces, <int> min(total // BYTES_FOR_A_HELPER, <int64_t> MOST_WORKERS))
    return 0


cdef int provide_codecs(int workers) except -1:
    cdef int index
    for index in range(workers):
        if codecs_of[index] == NULL:
            codecs_of[index] = borrow_codecs()
    return 0
