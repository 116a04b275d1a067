"""Reads a directory's names with their sizes, and small files whole, as a start does for each of thousands of
partitions.

Each is one call without the GIL, where `os` needs a call for each name or step.  Errors are `OSError`s with the path,
as those of `os`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, strlen
from posix.fcntl cimport O_CLOEXEC, O_RDONLY
from posix.unistd cimport close, read

import os

cdef extern from "Python.h":
    object PyUnicode_DecodeFSDefaultAndSize(const char* name, Py_ssize_t length)

cdef extern from "<errno.h>" nogil:
    int errno

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags)

cdef extern from "<sys/stat.h>" nogil:
    ctypedef unsigned int mode_t
    cdef struct c_stat "stat":
        mode_t st_mode
        int64_t st_size
    int fstatat(int fd, const char* path, c_stat* buf, int flags)
    bint S_ISDIR(mode_t mode)

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        unsigned char d_type
        char* d_name
    unsigned char DT_DIR, DT_LNK
    DIR* opendir(const char* path)
    dirent* readdir(DIR* stream)
    int dirfd(DIR* stream)
    int closedir(DIR* stream)

cdef enum:
    SMALL_BYTES = 4096

cdef struct Name:
    int64_t size                # -1 for a directory
    uint32_t at                 # where the name begins in `Listing.names`
    uint32_t length

cdef struct Listing:
    Name* entries
    char* names
    size_t count, room
    size_t used, names_room


cdef int hold(Listing* listing, const char* name, int64_t size) noexcept nogil:
    """Adds a name; 0, or ENOMEM."""
    cdef size_t length = strlen(name)
    cdef void* grown
    if listing.count == listing.room:
        grown = realloc(listing.entries, (2 * listing.room + 32) * sizeof(Name))
        if grown == NULL:
            return ENOMEM
        listing.entries = <Name*>grown
        listing.room = 2 * listing.room + 32
    if listing.used + length > listing.names_room:
        grown = realloc(listing.names, 2 * listing.names_room + length + 1024)
        if grown == NULL:
            return ENOMEM
        listing.names = <char*>grown
        listing.names_room = 2 * listing.names_room + length + 1024
    memcpy(listing.names + listing.used, name, length)
    listing.entries[listing.count].size = size
    listing.entries[listing.count].at = <uint32_t>listing.used
    listing.entries[listing.count].length = <uint32_t>length
    listing.used += length
    listing.count += 1
    return 0


cdef int fill(Listing* listing, const char* path) noexcept nogil:
    """Reads the directory; 0, or the error's number."""
    global errno
    cdef DIR* stream = opendir(path)
    cdef dirent* entry
    cdef c_stat status
    cdef int64_t size
    cdef int failure = 0
    if stream == NULL:
        return errno
    while True:
        errno = 0
        entry = readdir(stream)
        if entry == NULL:
            failure = errno
            break
        if entry.d_name[0] == b"." and (
            entry.d_name[1] == 0 or (entry.d_name[1] == b"." and entry.d_name[2] == 0)
        ):
            continue
        size = -1
        if entry.d_type != DT_DIR:
            if fstatat(dirfd(stream), entry.d_name, &status, 0) != 0:
                # Threads unlink files meanwhile.  A link to nothing has not gone, and may be a partition.
                if errno == ENOENT and entry.d_type != DT_LNK:
                    continue
                failure = errno
                break
            if not S_ISDIR(status.st_mode):
                size = status.st_size
        failure = hold(listing, entry.d_name, size)
        if failure:
            break
    closedir(stream)
    return failure


cdef bytes encode(str path):
    cdef bytes encoded = os.fsencode(path)
    if 0 in encoded:
        raise ValueError("embedded null byte")
    return encoded


def list_directory(str path, object make):
    """`make(name, is directory, bytes)` of each name but `.` and `..`, links followed; 0 bytes for directories."""
    cdef bytes encoded = encode(path)
    cdef const char* where = encoded
    cdef Listing listing = Listing(NULL, NULL, 0, 0, 0, 0)
    cdef int failure
    cdef size_t i
    cdef Name* entry
    cdef list found = []
    try:
        with nogil:
            failure = fill(&listing, where)
        if failure:
            raise OSError(failure, os.strerror(failure), path)
        for i in range(listing.count):
            entry = &listing.entries[i]
            name = PyUnicode_DecodeFSDefaultAndSize(listing.names + entry.at, entry.length)
            found.append(make(name, entry.size < 0, max(entry.size, 0)))
    finally:
        free(listing.entries)
        free(listing.names)
    return found


def read_small_file(str path):
    """A file's content; None when it has more than some thousand bytes."""
    cdef bytes encoded = encode(path)
    cdef const char* where = encoded
    cdef char data[SMALL_BYTES]
    cdef int fd
    cdef int failure = 0
    cdef Py_ssize_t got = 0
    with nogil:
        fd = c_open(where, O_RDONLY | O_CLOEXEC)
        if fd < 0:
            failure = errno
        else:
            # A file gives less than was asked for at its end only.
            got = read(fd, data, SMALL_BYTES)
            while got < 0 and errno == EINTR:
                got = read(fd, data, SMALL_BYTES)
            if got < 0:
                failure = errno
            close(fd)
    if failure:
        raise OSError(failure, os.strerror(failure), path)
    return None if got == SMALL_BYTES else PyBytes_FromStringAndSize(data, got)
