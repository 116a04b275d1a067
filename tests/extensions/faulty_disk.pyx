"""A bad disk under C: what the system's calls on files below some directories answer, until it is good again.

`put_faults` says which directories those are; `pwrite`, `pread` and the like of the C code ask here from then on, and
those of Python are to be patched with the functions of the same names below.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, ENOSPC
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memcmp, strlen
from posix.types cimport off_t

from kbroker._fast.files.file_write cimport kb_fail
from kbroker._fast.files.system_calls cimport RWF_NOWAIT, SystemCalls, iovec, system_calls

cdef extern from "<unistd.h>" nogil:
    ssize_t readlink(const char* path, char* buffer, size_t size)

cdef enum:
    MOST_FAULTS = 16
    MOST_PIECES = 1024
    PATH_BYTES = 512

cdef struct Fault:
    char[PATH_BYTES] folder
    size_t folder_size
    # The errors of writes and reads; 0: none.
    int write_error
    int read_error
    # Of 256 writes so many are short, if they can be.
    int short_share
    # So many bytes have room; -1: all.
    int64_t room

cdef Fault[MOST_FAULTS] faults
cdef int fault_count = 0
cdef uint64_t chance = 1
# Of 256 looks into the page cache so many meet what it lacks.
cdef int cold_share = 0
cdef uint64_t cold_chance = 1
cdef SystemCalls real = system_calls


cdef Fault* fault_of(int fd) noexcept nogil:
    """What is wrong with the disk of an open file; NULL: nothing."""
    cdef char[32] link
    cdef char[PATH_BYTES] path
    cdef ssize_t size
    cdef int index
    if fault_count == 0:
        return NULL
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd)
    size = readlink(link, path, PATH_BYTES)
    for index in range(fault_count):
        if size > <ssize_t> faults[index].folder_size and path[faults[index].folder_size] == b"/" \
                and memcmp(path, faults[index].folder, faults[index].folder_size) == 0:
            return &faults[index]
    return NULL


cdef uint64_t drawn(uint64_t* state) noexcept nogil:
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    return state[0]


cdef uint64_t draw() noexcept nogil:
    return drawn(&chance)


cdef ssize_t portion(Fault* fault, size_t size) noexcept nogil:
    """How much of a write the disk takes; -1 with errno."""
    if fault.write_error:
        kb_fail(fault.write_error)
        return -1
    if size > 1 and <int> (draw() % 256) < fault.short_share:
        size = 1 + draw() % (size - 1)
    if fault.room >= 0:
        size = min(size, <size_t> fault.room)
        fault.room -= size
        if size == 0:
            kb_fail(ENOSPC)
            return -1
    return size


cdef ssize_t bad_pwrite(int fd, const void* buffer, size_t size, int64_t offset) noexcept nogil:
    cdef Fault* fault = fault_of(fd)
    cdef ssize_t taken = size
    if fault != NULL:
        taken = portion(fault, size)
        if taken < 0:
            return taken
    return real.pwrite(fd, buffer, taken, offset)


cdef ssize_t bad_pwritev(int fd, const iovec* vector, int count, int64_t offset) noexcept nogil:
    cdef Fault* fault = fault_of(fd)
    cdef iovec[MOST_PIECES] pieces
    cdef size_t total = 0
    cdef ssize_t taken
    cdef int index
    if fault == NULL:
        return real.pwritev(fd, vector, count, offset)
    for index in range(count):
        total += vector[index].iov_len
    taken = portion(fault, total)
    if taken < 0:
        return taken
    for index in range(count):
        pieces[index].iov_base = vector[index].iov_base
        pieces[index].iov_len = min(vector[index].iov_len, <size_t> taken)
        taken -= pieces[index].iov_len
        if taken == 0:
            return real.pwritev(fd, pieces, index + 1, offset)
    return real.pwritev(fd, vector, count, offset)


cdef int read_error(int fd) noexcept nogil:
    cdef Fault* fault = fault_of(fd)
    return 0 if fault == NULL else fault.read_error


cdef ssize_t bad_pread(int fd, void* buffer, size_t size, int64_t offset) noexcept nogil:
    cdef int error = read_error(fd)
    if error:
        kb_fail(error)
        return -1
    return real.pread(fd, buffer, size, offset)


cdef ssize_t bad_preadv2(int fd, const iovec* vector, int count, int64_t offset, int flags) noexcept nogil:
    cdef int error = read_error(fd)
    if error == 0 and flags & RWF_NOWAIT and <int> (drawn(&cold_chance) % 256) < cold_share:
        error = EAGAIN
    if error:
        kb_fail(error)
        return -1
    return real.preadv2(fd, vector, count, offset, flags)


cdef ssize_t bad_sendfile(int out_fd, int in_fd, off_t* offset, size_t count) noexcept nogil:
    cdef int error = read_error(in_fd)
    if error:
        kb_fail(error)
        return -1
    return real.sendfile(out_fd, in_fd, offset, count)


cdef void put_calls():
    if fault_count or cold_share:
        system_calls.pread, system_calls.preadv2 = bad_pread, bad_preadv2
        system_calls.pwrite, system_calls.pwritev = bad_pwrite, bad_pwritev
        system_calls.sendfile = bad_sendfile
    else:
        system_calls.pread, system_calls.preadv2 = real.pread, real.preadv2
        system_calls.pwrite, system_calls.pwritev = real.pwrite, real.pwritev
        system_calls.sendfile = real.sendfile


def put_cold_pages(int share, uint64_t seed):
    """Of 256 looks into the page cache so many meet what it lacks, until a thread has read it."""
    global cold_share, cold_chance
    cold_share, cold_chance = share, seed | 1
    put_calls()


def put_faults(list wanted, uint64_t seed):
    """Each is (folder, write_error, read_error, short_share, room); none: the disk is good."""
    global fault_count, chance
    cdef Fault* fault
    cdef bytes name
    if len(wanted) > MOST_FAULTS:
        raise ValueError("too many faults")
    chance = seed | 1
    fault_count = 0
    for folder, write_error, error_of_reads, short_share, room in wanted:
        fault = &faults[fault_count]
        name = folder.encode()
        if len(name) >= PATH_BYTES:
            raise ValueError(folder)
        memcpy(fault.folder, PyBytes_AS_STRING(name), len(name) + 1)
        fault.folder_size = strlen(fault.folder)
        fault.write_error, fault.read_error = write_error, error_of_reads
        fault.short_share, fault.room = short_share, room
        fault_count += 1
    put_calls()


def pwrite(int fd, data, int64_t position):
    """`os.pwrite` on this disk."""
    cdef const unsigned char[::1] view = memoryview(data).cast("B")
    cdef ssize_t size = view.shape[0]
    cdef ssize_t done = system_calls.pwrite(fd, &view[0] if size else NULL, size, position)
    if done < 0:
        PyErr_SetFromErrno(OSError)
    return done


def pread(int fd, size_t size, int64_t position):
    """`os.pread` on this disk."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef ssize_t got = system_calls.pread(fd, PyBytes_AS_STRING(data), size, position)
    if got < 0:
        PyErr_SetFromErrno(OSError)
    return data if got == <ssize_t> size else data[:got]


def preadv(int fd, list buffers, int64_t position):
    """`os.preadv` into one buffer on this disk."""
    cdef unsigned char[::1] view = memoryview(buffers[0]).cast("B")
    cdef ssize_t size = view.shape[0]
    cdef ssize_t got
    if len(buffers) != 1:
        raise NotImplementedError("one buffer at a time")
    got = system_calls.pread(fd, &view[0] if size else NULL, size, position)
    if got < 0:
        PyErr_SetFromErrno(OSError)
    return got
