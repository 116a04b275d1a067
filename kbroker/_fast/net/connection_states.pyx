"""The states of a connection's two sides.

Requests, of which one is under way at a time (`RequestState`):

    READY -> SERVING                a request begins
    READY -> THROTTLED              a connection that was accepted sooner than its rate allows
    SERVING -> DEFERRED             the request is answered with others at the end of the turn (`FlushBatch`)
    SERVING -> READY, THROTTLED     it is answered; its client used more than its quota, so that the next one waits
    DEFERRED -> SERVING             its answer is there, waits for something else, or is made by itself after all
    DEFERRED -> READY               it is begun again
    THROTTLED -> READY              the throttle time is over

Answers, in the order of their requests (`SendState`); in all but SEND_CLEAR no further request begins:

    SEND_CLEAR      nothing waits
    SEND_HELD       for the end of the loop's iteration
    SEND_FULL       for room in the socket, which the loop watches
    SEND_YIELDED    for more of the loop's time
    SEND_LENT       for a thread: to send, or to read what is not in memory; ends with its word alone, SEND_YIELDED

SEND_CLEAR and SEND_HELD are followed by any, SEND_FULL and SEND_YIELDED by any but SEND_HELD.  A closed connection
keeps the states that it had.
"""

from kbroker._fast.net.connection_states cimport may_request_next, may_send_next


def follows(kind, now, then) -> bool:
    """Whether `then` may follow `now`, both of the enum `kind`."""
    return may_send_next(now, then) if kind is SendState else may_request_next(now, then)
