"""See `tls_stream.pxd`.

OpenSSL reads what came through a memory of its own that only points at those bytes, made anew for each piece, so that a
quiet connection has no buffers.  It writes into another one, of which each record is taken at once: that memory stays
as small as a record, and one `send` has many of them.
"""

from libc.errno cimport EAGAIN, EINTR, EIO, EPIPE, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from kbroker._fast.files.file_write cimport kb_fail
from kbroker._fast.files.system_calls cimport iovec, system_calls
from kbroker._fast.tls.kernel_tls cimport (
    begin_notes,
    count_records,
    end_notes,
    forget_secret,
    say_end,
)
from kbroker._fast.net.socket_calls cimport socket_calls
from kbroker._fast.net.socket_part cimport NO_ROOM
from kbroker._fast.tls.tls_library cimport tls_calls
from kbroker._fast.tls.tls_stream cimport (
    BROKEN,
    ENDED,
    HEADER_BYTES,
    PORTION_BYTES,
    RECORD_BYTES,
    SPARE_BYTES,
    Bytes,
    SendRoom,
    TlsStream,
)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef char NOTHING = 0

cdef enum:
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_ZERO_RETURN = 6
    # What a handshake writes, or an answer to a change of keys.
    ASIDE_BYTES = 16384


cdef bint begin_stream(TlsStream* stream, void* context) noexcept nogil:
    """Whether there is memory for the server's side of a session."""
    memset(stream, 0, sizeof(TlsStream))
    stream.session = tls_calls.new_stream(context)
    if stream.session == NULL:
        return False
    stream.outgoing = tls_calls.new_memory(tls_calls.memory_kind())
    if stream.outgoing == NULL:
        return False
    stream.kernel.session = stream.session
    tls_calls.set_accept_state(stream.session)
    return offer(stream, NULL, 0)


cdef void end_stream(TlsStream* stream) noexcept nogil:
    """Free all of it.  The session owns what it writes into."""
    if stream.session != NULL:
        tls_calls.free_stream(stream.session)
    elif stream.outgoing != NULL:
        tls_calls.free_memory(stream.outgoing)
    stream.session = stream.outgoing = NULL
    forget_secret(&stream.kernel)
    drop(&stream.pending)
    drop(&stream.held)


cdef bint keep(Bytes* store, const char* data, size_t size) noexcept nogil:
    """Whether there is memory to keep these bytes behind those that are there."""
    cdef size_t there = store.end - store.start
    cdef char* larger
    if store.start > 0:
        memmove(store.data, store.data + store.start, there)
        store.start = 0
        store.end = there
    if there + size > store.capacity:
        larger = <char*> realloc(store.data, there + size)
        if larger == NULL:
            return False
        store.data = larger
        store.capacity = there + size
    memcpy(store.data + there, data, size)
    store.end += size
    return True


cdef void drop(Bytes* store) noexcept nogil:
    """Forget what is kept, and give its memory back."""
    free(store.data)
    memset(store, 0, sizeof(Bytes))


cdef bint offer(TlsStream* stream, const char* data, size_t size) noexcept nogil:
    """Whether OpenSSL reads these bytes next; they stay where they are until it has."""
    cdef void* incoming = tls_calls.memory_of(&NOTHING if data == NULL else <char*> data, <int> size)
    if incoming == NULL:
        return False
    # At its end more will follow.
    tls_calls.set_end(incoming, -1)
    tls_calls.set_memory(stream.session, incoming, stream.outgoing)
    stream.incoming = incoming
    stream.incoming_bytes = size
    return True


cdef bint offer_pending(TlsStream* stream) noexcept nogil:
    """The same with what is pending."""
    return offer(stream, stream.pending.data + stream.pending.start, stream.pending.end - stream.pending.start)


cdef bint has_more(TlsStream* stream, const char** data, size_t* size) noexcept nogil:
    """Whether there is more to decrypt without another byte of the client's; and what OpenSSL has not looked at."""
    cdef long left = tls_calls.content(stream.incoming, <char**> data)
    size[0] = <size_t> left if left > 0 else 0
    return left > 0 or tls_calls.pending(stream.session) > 0


cdef void _failed(TlsStream* stream, int outcome) noexcept nogil:
    """Notes why a call of OpenSSL gave nothing."""
    cdef int kind = tls_calls.error_of(stream.session, outcome)
    if kind == SSL_ERROR_WANT_READ:
        return
    if kind == SSL_ERROR_ZERO_RETURN:
        stream.progress = ENDED
        return
    stream.progress = BROKEN
    # The first is the cause.
    stream.error = tls_calls.next_error()
    tls_calls.clear_errors()


cdef void shake_hands(TlsStream* stream) noexcept nogil:
    """Go on with the handshake with what is pending; what it says in return is held."""
    cdef const char* left = NULL
    cdef size_t size = 0
    cdef int outcome
    if not offer_pending(stream):
        stream.progress = BROKEN
        return
    tls_calls.clear_errors()
    begin_notes(&stream.kernel)
    outcome = tls_calls.shake_hands(stream.session)
    end_notes()
    if outcome == 1:
        stream.shaken = True
    else:
        _failed(stream, outcome)
    has_more(stream, &left, &size)
    stream.pending.start = stream.pending.end - size
    if size == 0:
        drop(&stream.pending)
    if not collect(stream):
        stream.progress = BROKEN
    # Nothing of it is read again from there.
    offer(stream, NULL, 0)


cdef ssize_t decrypt(TlsStream* stream, char* room, size_t size) noexcept nogil:
    """How many bytes of requests it has put into `room`, as many as there are; `progress` says what comes then."""
    cdef size_t got = 0
    cdef int count
    cdef const char* left = NULL
    cdef size_t rest = 0
    tls_calls.clear_errors()
    begin_notes(&stream.kernel)
    while got < size:
        count = tls_calls.read(stream.session, room + got, <int> (size - got))
        if count <= 0:
            _failed(stream, count)
            break
        got += count
        if not has_more(stream, &left, &rest):
            break
    end_notes()
    return got


cdef bint collect(TlsStream* stream) noexcept nogil:
    """Hold what OpenSSL says by itself, in a handshake or between requests; whether there was memory for it."""
    cdef char aside[ASIDE_BYTES]
    cdef size_t before = stream.held.end - stream.held.start
    cdef int count = tls_calls.take(stream.outgoing, aside, ASIDE_BYTES)
    while count > 0:
        if not keep(&stream.held, aside, count):
            return False
        count = tls_calls.take(stream.outgoing, aside, ASIDE_BYTES)
    if stream.kernel.secret_bytes > 0 and stream.shaken:
        count_records(
            &stream.kernel, stream.held.data + stream.held.start + before,
            stream.held.end - stream.held.start - before)
    return True


cdef void put_aside(TlsStream* stream) noexcept nogil:
    """Forget what OpenSSL says where only the kernel can: an alert, and the end follows by itself."""
    cdef char aside[ASIDE_BYTES]
    while tls_calls.take(stream.outgoing, aside, ASIDE_BYTES) > 0:
        pass


cdef ssize_t _send(int fd, const char* data, size_t size) noexcept nogil:
    """How much the socket takes; -1 with errno where it is broken."""
    cdef size_t done = 0
    cdef ssize_t sent
    while done < size:
        sent = socket_calls.send(fd, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            done += sent
        elif errno == EAGAIN:
            break
        elif errno != EINTR:
            return -1
    return done


cdef bint send_held(TlsStream* stream, int fd) noexcept nogil:
    """Send what is held; False with errno where the socket is broken."""
    cdef Bytes* held = &stream.held
    cdef ssize_t sent
    if held.start == held.end:
        return True
    sent = _send(fd, held.data + held.start, held.end - held.start)
    if sent < 0:
        return False
    held.start += sent
    if held.start == held.end:
        drop(held)
    return True


cdef ssize_t _encrypt(TlsStream* stream, const char* data, size_t size, char* target, size_t room) noexcept nogil:
    """How long the records of these bytes are, in `target`; -1 where OpenSSL fails."""
    cdef size_t done = 0, filled = 0
    cdef int portion, count
    cdef unsigned char* record
    tls_calls.clear_errors()
    while done < size:
        portion = <int> min(size - done, <size_t> RECORD_BYTES)
        count = tls_calls.write(stream.session, data + done, portion)
        if count <= 0:
            _failed(stream, count)
            stream.progress = BROKEN
            return -1
        done += count
        count = tls_calls.take(stream.outgoing, target + filled, <int> (room - filled))
        if count <= 0:
            stream.progress = BROKEN
            return -1
        record = <unsigned char*> target + filled
        if HEADER_BYTES + (record[3] << 8 | record[4]) == count:
            stream.kernel.records += 1
        elif stream.kernel.secret_bytes > 0:
            # OpenSSL has said before that new keys follow.
            forget_secret(&stream.kernel)
            stream.kernel.owes_keys = False
        filled += count
    return filled


cdef size_t _put_held(TlsStream* stream, char* target) noexcept nogil:
    """Puts what is held before what follows, for one send; how long it is."""
    cdef Bytes* held = &stream.held
    cdef size_t size = held.end - held.start
    if size > 0:
        memcpy(target, held.data + held.start, size)
        drop(held)
    return size


cdef bint _send_or_hold(TlsStream* stream, int fd, const char* data, size_t size) noexcept nogil:
    """Whether the socket or `held` has all of it; else errno says why."""
    cdef ssize_t sent = _send(fd, data, size)
    if sent < 0:
        return False
    if <size_t> sent < size and not keep(&stream.held, data + sent, size - sent):
        kb_fail(EPIPE)
        return False
    return True


cdef ssize_t send_pieces(
    TlsStream* stream, int fd, SendRoom* room, const iovec* pieces, int count, bint more
) noexcept nogil:
    """As `SocketPart.write`: up to a portion of them, in records that are as full as can be.

    Where `more` follows and it is little, it is held, to leave with that.
    """
    cdef size_t taken = 0, gathered = 0, filled, left, portion
    cdef ssize_t size
    cdef const char* data
    cdef int index
    if stream.held.end - stream.held.start > SPARE_BYTES / 2:
        # Less is what was held for these.
        if not send_held(stream, fd):
            return -1
        if stream.held.end > 0:
            return NO_ROOM
    filled = _put_held(stream, room.encrypted)
    for index in range(count):
        data = <const char*> pieces[index].iov_base
        left = min(pieces[index].iov_len, PORTION_BYTES - taken)
        taken += left
        while left > 0:
            if gathered == 0 and left >= RECORD_BYTES:
                portion = left - left % RECORD_BYTES
                size = _encrypt(stream, data, portion, room.encrypted + filled, sizeof(room.encrypted) - filled)
                if size < 0:
                    kb_fail(EPIPE)
                    return -1
                filled += size
            else:
                portion = min(left, RECORD_BYTES - gathered)
                memcpy(room.plain + gathered, data, portion)
                gathered += portion
                if gathered == RECORD_BYTES:
                    size = _encrypt(
                        stream, room.plain, gathered, room.encrypted + filled, sizeof(room.encrypted) - filled)
                    if size < 0:
                        kb_fail(EPIPE)
                        return -1
                    filled += size
                    gathered = 0
            data += portion
            left -= portion
        if taken == PORTION_BYTES:
            break
    if gathered > 0:
        size = _encrypt(stream, room.plain, gathered, room.encrypted + filled, sizeof(room.encrypted) - filled)
        if size < 0:
            kb_fail(EPIPE)
            return -1
        filled += size
    if more and filled <= SPARE_BYTES / 2:
        if not keep(&stream.held, room.encrypted, filled):
            kb_fail(EPIPE)
            return -1
    elif not _send_or_hold(stream, fd, room.encrypted, filled):
        return -1
    return taken


cdef ssize_t send_range(
    TlsStream* stream, int out_fd, SendRoom* room, int fd, int64_t position, size_t size
) noexcept nogil:
    """As `SocketPart.write_region`, portion by portion until the socket is full: so much of the file was taken."""
    cdef size_t taken = 0, filled
    cdef ssize_t got, count
    if stream.held.end - stream.held.start > SPARE_BYTES / 2:
        if not send_held(stream, out_fd):
            return -1
        if stream.held.end > 0:
            return NO_ROOM
    while taken < size:
        got = system_calls.pread(fd, room.plain, min(size - taken, <size_t> PORTION_BYTES), position + <int64_t> taken)
        if got <= 0:
            if got < 0 and errno == EINTR:
                continue
            if got < 0:
                kb_fail(EIO)
            return taken if taken > 0 else got
        filled = _put_held(stream, room.encrypted)
        count = _encrypt(stream, room.plain, got, room.encrypted + filled, sizeof(room.encrypted) - filled)
        if count < 0:
            kb_fail(EPIPE)
            return -1
        taken += got
        if not _send_or_hold(stream, out_fd, room.encrypted, filled + count):
            return -1
        if stream.held.end > 0:
            break
    return taken


cdef void say_goodbye(TlsStream* stream, int fd) noexcept nogil:
    """Tell the client that this is the end, if its socket takes it."""
    if stream.progress == BROKEN and stream.held.end == 0:
        return
    if stream.kernel.taken_over:
        if stream.progress != BROKEN:
            say_end(fd)
        return
    tls_calls.clear_errors()
    if stream.shaken and stream.progress != BROKEN:
        tls_calls.shut_down(stream.session)
        tls_calls.clear_errors()
    if collect(stream):
        send_held(stream, fd)
