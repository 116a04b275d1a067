"""The states of a connection's two sides, and which may follow which; `connection_states.pyx` has their meaning."""

cpdef enum SendState:
    SEND_CLEAR
    SEND_HELD
    SEND_FULL
    SEND_YIELDED
    SEND_LENT

cpdef enum RequestState:
    READY
    SERVING
    DEFERRED
    THROTTLED

cdef extern from *:
    """
    static const unsigned char kb_send_next[] = {
        /* CLEAR */ 0x1F, /* HELD */ 0x1F, /* FULL */ 0x1D, /* YIELDED */ 0x1D, /* LENT */ 0x18
    };
    static const unsigned char kb_request_next[] = {
        /* READY */ 0xB, /* SERVING */ 0xF, /* DEFERRED */ 0x3, /* THROTTLED */ 0x9
    };
    """
    const unsigned char kb_send_next[5]
    const unsigned char kb_request_next[4]


cdef inline bint may_send_next(SendState now, SendState then) noexcept nogil:
    return kb_send_next[<int> now] >> <int> then & 1


cdef inline bint may_request_next(RequestState now, RequestState then) noexcept nogil:
    return kb_request_next[<int> now] >> <int> then & 1
