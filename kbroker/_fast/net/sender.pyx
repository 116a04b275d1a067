"""The output of one connection: bytes and file regions, sent in the order they were queued.

Everything goes straight to the socket: neighbouring byte strings leave in one `sendmsg`, a file region by `sendfile`
behind a `MSG_MORE` header, so that record batches pass from the page cache to the socket without entering this
process.  Nothing here blocks: what the socket does not take stays queued, and the connection asks the loop to call
when it is writable again.  `sendfile` would wait for the disk, so the pages of a region are probed first
(`_fast/files/page_cache.pyx`); a stretch that is not in the page cache is named in `cold_*` for the connection to have
it read by a thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, EIO, errno
from libc.string cimport memset
from posix.types cimport off_t

from kbroker._fast.files.file_read cimport iovec
from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.files.page_cache cimport is_resident, was_read
from kbroker._fast.net.send_threads cimport LEND_BYTES, SendThreads

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void* msg_name
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_MORE
    int MSG_DONTWAIT

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out_fd, int in_fd, off_t* offset, size_t count)

cdef enum:
    IOV_COUNT = 32
    # Above this a sendfile copies long enough that other threads may run meanwhile.
    RELEASE_GIL_BYTES = 131072
    # One call sends no more, so that a fast reader of a large answer leaves the loop to others.
    SENDFILE_BYTES = 2097152
    # Of bytes, which are copied, and whose reader may get the processor as soon as there is something for it.
    SEND_BYTES = 1048576
    # So many times what a byte of a file counts in the budget of a flush.
    COPIED = 4
    # So much of what is queued behind a cold stretch is named with it.
    AHEAD_BYTES = 4194304
    # For so many stretches after a cold one, what is in memory is taken for what a thread has just read.
    CATCHING_UP = 32
    COLD = -3
    LENT = -4


class FileShrunkError(OSError):
    """A file region reaches past the end of its file `fd`: the log was cut under a reader."""

    def __init__(self, fd, text):
        super().__init__(text)
        self.fd = fd


cdef class Sender:
    """Queue and socket of one connection.  `fd` stays owned by the transport."""

    def __cinit__(self, int fd, SendThreads threads):
        self.fd = fd
        self.parts = []
        self.threads = threads

    cdef void queue(self, object part):
        self.parts.append(part)
        if type(part) is bytes:
            self.queued_bytes += PyBytes_GET_SIZE(part)
        else:
            self.queued_bytes += (<FileRegion> part).size

    cdef int queue_frame(self, list frame) except -1:
        """Queue the parts of one answer."""
        cdef object part
        for part in frame:
            self.queue(part)
        return 0

    cdef void clear(self):
        self.parts.clear()
        self.head = 0
        self.offset = 0
        self.queued_bytes = 0

    cdef int flush(self, Py_ssize_t budget_bytes, object user) except -2:
        """Send what the socket takes.

        1 when all is out, 0 when the socket is full, 2 when the budget is used up, 3 when `cold_region` must be read
        from the disk first, 4 when a thread has what comes next and will tell `user` (None: no thread may have it).
        Raises OSError when the connection is broken.
        """
        cdef ssize_t sent
        cdef Py_ssize_t spent = 0
        cdef int weight
        if self.lent:
            return 4
        while self.head < len(self.parts):
            if spent >= budget_bytes:
                return 2
            weight = 1
            if type(self.parts[self.head]) is bytes:
                weight = COPIED
                sent = self._send_bytes()
            else:
                sent = self._send_region(<FileRegion> self.parts[self.head], user)
            if sent == COLD:
                return 3
            if sent == LENT:
                return 4
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    return 0
                raise OSError(errno, "send failed")
            spent += sent * weight
            self._advance(sent)
        self.clear()
        return 1

    cdef ssize_t _send_bytes(self) except? -1:
        cdef iovec vector[IOV_COUNT]
        cdef msghdr message
        cdef object part
        cdef Py_ssize_t index = self.head
        cdef Py_ssize_t total = len(self.parts)
        cdef int count = 0
        cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT
        cdef Py_ssize_t room = SEND_BYTES + self.offset
        while index < total and count < IOV_COUNT and room > 0:
            part = self.parts[index]
            if type(part) is not bytes:
                flags |= MSG_MORE
                break
            vector[count].iov_base = PyBytes_AS_STRING(part)
            vector[count].iov_len = min(room, PyBytes_GET_SIZE(part))
            room -= PyBytes_GET_SIZE(part)
            count += 1
            index += 1
        vector[0].iov_base = <char*> vector[0].iov_base + self.offset
        vector[0].iov_len -= self.offset
        if count == 1:
            return send(self.fd, vector[0].iov_base, vector[0].iov_len, flags)
        memset(&message, 0, sizeof(message))
        message.msg_iov = vector
        message.msg_iovlen = count
        return sendmsg(self.fd, &message, flags)

    cdef list cold_stretches(self):
        """The cold stretch as (region, position, size), and those that are queued behind it, up to AHEAD_BYTES."""
        cdef list found = [(self.cold_region, self.cold_position, self.cold_bytes)]
        cdef FileRegion region
        cdef off_t position = self.cold_position + <off_t> self.cold_bytes
        cdef Py_ssize_t size
        cdef Py_ssize_t room = AHEAD_BYTES
        cdef Py_ssize_t index
        for index in range(self.head, len(self.parts)):
            if type(self.parts[index]) is bytes:
                continue
            region = <FileRegion> self.parts[index]
            if index > self.head:
                position = region.position
            size = min(<Py_ssize_t> (region.position + region.size - position), room)
            if size > 0:
                found.append((region, position, size))
                room -= size
            if room <= 0:
                break
        return found

    cdef void helped(self, Py_ssize_t sent):
        """A thread is through with what `flush` ended at.

        A stretch that was cold is sent without another look, however soon the kernel drops it again.  Where a thread
        was to send and got nowhere, the next attempt is ours, and finds out why.
        """
        if not self.lent:
            self.warm_from = self.cold_position
            self.warm_until = self.cold_position + self.cold_bytes
            self.cold_region = None
            return
        self.lent = False
        if sent > 0:
            self._advance(sent)
        else:
            self.keep = True

    cdef ssize_t _send_region(self, FileRegion region, object user) except? -1:
        cdef off_t position = region.position + self.offset
        cdef size_t left = region.size - self.offset
        cdef int fd = region.fd
        cdef int out_fd = self.fd
        cdef bint there
        cdef ssize_t sent
        if left == 0:
            return 0
        if left > SENDFILE_BYTES:
            left = SENDFILE_BYTES
        if not self.warm_from <= position < self.warm_until:
            if self.catching_up > 0:
                self.catching_up -= 1
                there = was_read(fd, position, left)
            else:
                there = is_resident(fd, position, left)
            if not there:
                self.catching_up = CATCHING_UP
                self.cold_region = region
                self.cold_position = position
                self.cold_bytes = left
                return COLD
            self.warm_from = position
            self.warm_until = position + <off_t> left
        if position + <off_t> left > self.warm_until:
            left = self.warm_until - position
        if left >= LEND_BYTES and user is not None and not self.keep:
            self.lent = self.threads.take(user, out_fd, region, position, left)
            if self.lent:
                return LENT
        self.keep = False
        if left < RELEASE_GIL_BYTES:
            sent = sendfile(out_fd, fd, &position, left)
        else:
            with nogil:
                sent = sendfile(out_fd, fd, &position, left)
        if sent < 0 and errno == EIO:
            # The disk, not the socket: what reads the range in its place finds out and reports it.
            self.warm_until = 0
            self.cold_region = region
            self.cold_position = region.position + self.offset
            self.cold_bytes = left
            return COLD
        if sent == 0:
            raise FileShrunkError(fd, f"{left} bytes at {position} are no longer in the file")
        return sent

    cdef void _advance(self, Py_ssize_t sent):
        cdef object part
        cdef Py_ssize_t size
        self.queued_bytes -= sent
        sent += self.offset
        while self.head < len(self.parts):
            part = self.parts[self.head]
            size = PyBytes_GET_SIZE(part) if type(part) is bytes else (<FileRegion> part).size
            if sent < size:
                break
            sent -= size
            self.parts[self.head] = None
            self.warm_until = 0
            self.head += 1
        self.offset = sent
