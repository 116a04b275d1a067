"""See `kernel_tls.pxd`.

The kernel gets the keys of a session whose handshake OpenSSL has made.  They are derived from a secret of TLS 1.3
that OpenSSL tells only while it comes about, to the callback for key logs (`secret_taker`); it is noted for the session
that shakes hands in this thread, and nowhere else.  In the same way one that reads learns that its client wants
new keys.
"""

from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset, strchr, strncmp

from kbroker._fast.files.system_calls cimport iovec
from kbroker._fast.tls.kernel_tls cimport MOST_SECRET_BYTES, KernelSide
from kbroker._fast.net.socket_calls cimport msghdr, socket_calls

cdef extern from *:
    """
    static __thread void *kb_shaking;
    """
    void* kb_shaking

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* data, size_t size)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<sys/socket.h>" nogil:
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    size_t CMSG_LEN(size_t size)
    size_t CMSG_SPACE(size_t size)
    unsigned char* CMSG_DATA(cmsghdr* header)

cdef enum:
    # Of <linux/tcp.h> and <linux/tls.h>, which a system's headers need not have.
    TCP_ULP = 31
    SOL_TLS = 282
    TLS_TX = 1
    TLS_SET_RECORD_TYPE = 1
    CONTROL_BYTES = 64
    HANDSHAKE = 22
    KEY_UPDATE = 24
    KEY_UPDATE_BYTES = 5
    ALERT = 21
    HEADER_BYTES = 5

cdef const char* LABEL = "SERVER_TRAFFIC_SECRET_0 "
cdef const char* ULP = "tls"
# No new keys are wanted in return (RFC 8446, 4.6.3).
cdef char[KEY_UPDATE_BYTES] NEW_KEYS = [KEY_UPDATE, 0, 0, 1, 0]
cdef char[2] CLOSE_NOTIFY = [1, 0]


cdef bint take_over(int fd, const char* keys, unsigned int size, bint again) noexcept nogil:
    """Whether the kernel encrypts with these keys what is sent from now on (`struct tls12_crypto_info_…`); else errno
    says why, and the socket sends as before.  `again`: it does already, with others."""
    if not again and socket_calls.setsockopt(fd, IPPROTO_TCP, TCP_ULP, ULP, 3) != 0:
        return False
    return socket_calls.setsockopt(fd, SOL_TLS, TLS_TX, keys, size) == 0


cdef bint _say(int fd, unsigned char kind, const char* data, size_t size) noexcept nogil:
    """Whether a record of that kind, no data of the application's, was taken; else errno says why."""
    cdef char room[CONTROL_BYTES]
    cdef cmsghdr* header = <cmsghdr*> room
    cdef msghdr message
    cdef iovec piece
    memset(room, 0, sizeof(room))
    memset(&message, 0, sizeof(message))
    piece.iov_base = <void*> data
    piece.iov_len = size
    message.msg_iov = &piece
    message.msg_iovlen = 1
    message.msg_control = room
    message.msg_controllen = CMSG_SPACE(1)
    header.cmsg_level = SOL_TLS
    header.cmsg_type = TLS_SET_RECORD_TYPE
    header.cmsg_len = CMSG_LEN(1)
    CMSG_DATA(header)[0] = kind
    return socket_calls.sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == <ssize_t> size


cdef bint say_new_keys(int fd) noexcept nogil:
    """As `_say`: what follows has other keys, those of the next secret."""
    return _say(fd, HANDSHAKE, NEW_KEYS, sizeof(NEW_KEYS))


cdef bint say_end(int fd) noexcept nogil:
    """As `_say`: nothing follows."""
    return _say(fd, ALERT, CLOSE_NOTIFY, sizeof(CLOSE_NOTIFY))


cdef void count_records(KernelSide* side, const char* data, size_t size) noexcept nogil:
    """Count the records of what OpenSSL has written by itself after a handshake: tickets."""
    cdef const unsigned char* at = <const unsigned char*> data
    cdef size_t done = 0
    while size - done >= HEADER_BYTES:
        side.records += 1
        done += HEADER_BYTES + (at[done + 3] << 8 | at[done + 4])


cdef void forget_secret(KernelSide* side) noexcept nogil:
    """The kernel cannot have the session, or has it for good."""
    explicit_bzero(side.secret, MOST_SECRET_BYTES)
    side.secret_bytes = 0


cdef void begin_notes(KernelSide* side) noexcept nogil:
    """What OpenSSL tells in this thread is of that side."""
    global kb_shaking
    kb_shaking = side


cdef void end_notes() noexcept nogil:
    global kb_shaking
    kb_shaking = NULL


cdef int digit_of(char letter) noexcept nogil:
    if 48 <= letter <= 57:
        return letter - 48
    if 97 <= letter <= 102:
        return letter - 87
    return letter - 55 if 65 <= letter <= 70 else -1


cdef void note(const void* session, const char* line) noexcept nogil:
    """A line of a key log: LABEL, the client's random bytes and the secret, both in hexadecimal."""
    cdef KernelSide* side = <KernelSide*> kb_shaking
    cdef const char* text
    cdef char secret[MOST_SECRET_BYTES]
    cdef int size = 0, high, low
    if side == NULL or side.session != session or strncmp(line, LABEL, 24) != 0:
        return
    text = strchr(line + 24, 32)
    if text == NULL:
        return
    text += 1
    while size < MOST_SECRET_BYTES:
        high = digit_of(text[0])
        low = digit_of(text[1]) if high >= 0 else -1
        if low < 0:
            break
        secret[size] = <char> (high << 4 | low)
        size += 1
        text += 2
    memcpy(side.secret, secret, size)
    explicit_bzero(secret, sizeof(secret))
    side.secret_bytes = size


cdef void note_request(int written, int version, int kind, const void* data, size_t size, void* session,
                       void* argument) noexcept nogil:
    """A message of a handshake; a client's KeyUpdate may want one in return, which OpenSSL shows in no other way."""
    cdef KernelSide* side = <KernelSide*> kb_shaking
    cdef const unsigned char* message = <const unsigned char*> data
    if (kind == HANDSHAKE and not written and size == KEY_UPDATE_BYTES and message[0] == KEY_UPDATE and message[4] == 1
            and side != NULL and side.session == session):
        side.owes_keys = True


def secret_taker() -> int:
    """The address of the function for SSL_CTX_set_keylog_callback."""
    return <uintptr_t> &note


def message_taker() -> int:
    """The address of the function for SSL_CTX_set_msg_callback."""
    return <uintptr_t> &note_request
