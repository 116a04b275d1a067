"""The states of a connection, and which may follow which; `connection_states.pyx` has their meaning."""

cpdef enum LifeState:
    OPEN
    ENDING
    CLOSED

cpdef enum ReadState:
    READING
    PAUSED
    AWAITING_MEMORY

cpdef enum RequestState:
    READY
    AGAIN
    SERVING
    WAITING
    DEFERRED
    THROTTLED

cpdef enum SendState:
    SEND_CLEAR
    SEND_HELD
    SEND_FULL
    SEND_YIELDED
    SEND_LENT

cdef extern from *:
    """
    static const unsigned char kb_life_next[] = {
        /* OPEN */ 0x6, /* ENDING */ 0x4, /* CLOSED */ 0x0
    };
    static const unsigned char kb_read_next[] = {
        /* READING */ 0x6, /* PAUSED */ 0x5, /* AWAITING_MEMORY */ 0x1
    };
    static const unsigned char kb_request_next[] = {
        /* READY */ 0x25, /* AGAIN */ 0x4, /* SERVING */ 0x39,
        /* WAITING */ 0x5, /* DEFERRED */ 0x6, /* THROTTLED */ 0x21
    };
    static const unsigned char kb_send_next[] = {
        /* CLEAR */ 0x1F, /* HELD */ 0x1F, /* FULL */ 0x1D, /* YIELDED */ 0x1D, /* LENT */ 0x18
    };
    """
    const unsigned char kb_life_next[3]
    const unsigned char kb_read_next[3]
    const unsigned char kb_request_next[6]
    const unsigned char kb_send_next[5]


cdef inline bint may_live_on(LifeState now, LifeState then) noexcept nogil:
    return kb_life_next[<int> now] >> <int> then & 1


cdef inline bint may_read_next(ReadState now, ReadState then) noexcept nogil:
    return kb_read_next[<int> now] >> <int> then & 1


cdef inline bint may_request_next(RequestState now, RequestState then) noexcept nogil:
    return kb_request_next[<int> now] >> <int> then & 1


cdef inline bint may_send_next(SendState now, SendState then) noexcept nogil:
    return kb_send_next[<int> now] >> <int> then & 1
