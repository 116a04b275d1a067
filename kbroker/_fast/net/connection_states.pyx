"""The states of a connection: of itself, of its frame reader, of its requests and of its answers.

The connection (`LifeState`):

    OPEN -> ENDING      the client sends no more, but what it sent is still being served
    OPEN, ENDING -> CLOSED

Reading (`ReadState`):

    READING -> PAUSED               as much lies in the buffer, behind a request under way, as is taken from a client
    READING -> AWAITING_MEMORY      a large frame waits for its turn to have a buffer (`BufferPool`)
    PAUSED -> READING, AWAITING_MEMORY; AWAITING_MEMORY -> READING

Requests, of which one is under way at a time (`RequestState`):

    READY -> SERVING                    a request begins
    READY -> THROTTLED                  a connection that was accepted sooner than its rate allows
    SERVING -> DEFERRED                 the request is answered with others at the end of the turn (`FlushBatch`)
    SERVING -> WAITING                  its answer comes later (`Pending`)
    SERVING -> READY, THROTTLED         it is answered; its client used more than its quota, so that the next one waits
    WAITING -> SERVING                  its answer is there
    WAITING -> READY                    its answer is dropped, as the connection has ended
    DEFERRED -> SERVING                 its answer is there, or waits for something else
    DEFERRED -> AGAIN -> SERVING        it is begun again, by itself
    THROTTLED -> READY                  the throttle time is over

In SERVING the loop is inside the connection's code, which continues with the next frames when it has finished.

Answers, in the order of their requests (`SendState`); in all but SEND_CLEAR no further request begins:

    SEND_CLEAR      nothing waits
    SEND_HELD       for the end of the loop's iteration
    SEND_FULL       for room in the socket, which the loop watches
    SEND_YIELDED    for more of the loop's time
    SEND_LENT       for a thread: to send, or to read what is not in memory; ends with its word alone, SEND_YIELDED

SEND_CLEAR and SEND_HELD are followed by any, SEND_FULL and SEND_YIELDED by any but SEND_HELD.  A closed connection
keeps the other states that it had.
"""

from kbroker._fast.net.connection_states cimport may_live_on, may_read_next, may_request_next, may_send_next


def follows(kind, now, then) -> bool:
    """Whether `then` may follow `now`, both of the enum `kind`."""
    if kind is LifeState:
        return may_live_on(now, then)
    if kind is ReadState:
        return may_read_next(now, then)
    return may_send_next(now, then) if kind is SendState else may_request_next(now, then)
