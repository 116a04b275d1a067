"""The states of a connection: which may follow which."""

from __future__ import annotations

from kbroker._fast.net.connection_states import LifeState, ReadState, RequestState, SendState, follows

L, Q, R, S = LifeState, ReadState, RequestState, SendState
LIVES = {L.OPEN: {L.ENDING, L.CLOSED}, L.ENDING: {L.CLOSED}, L.CLOSED: set()}
READS = {
    Q.READING: {Q.PAUSED, Q.AWAITING_MEMORY},
    Q.PAUSED: {Q.READING, Q.AWAITING_MEMORY},
    Q.AWAITING_MEMORY: {Q.READING},
}
REQUESTS = {
    R.READY: {R.READY, R.SERVING, R.THROTTLED},
    R.AGAIN: {R.SERVING},
    R.SERVING: {R.READY, R.WAITING, R.DEFERRED, R.THROTTLED},
    R.WAITING: {R.READY, R.SERVING},
    R.DEFERRED: {R.AGAIN, R.SERVING},
    R.THROTTLED: {R.READY, R.THROTTLED},
}
SENDS = {
    S.SEND_CLEAR: set(S),
    S.SEND_HELD: set(S),
    S.SEND_FULL: set(S) - {S.SEND_HELD},
    S.SEND_YIELDED: set(S) - {S.SEND_HELD},
    S.SEND_LENT: {S.SEND_YIELDED, S.SEND_LENT},
}


def test_a_request_begins_only_when_the_one_before_is_answered_and_no_throttle_time_runs() -> None:
    """Answers would lose their order, or a muted client would be served."""
    for now in R:
        assert {then for then in R if follows(R, now, then)} == REQUESTS[now]
    assert not follows(R, R.THROTTLED, R.SERVING)


def test_what_a_thread_has_is_given_back_before_anything_else_is_sent() -> None:
    """Bytes of one answer would go out amid those of another."""
    for now in S:
        assert {then for then in S if follows(S, now, then)} == SENDS[now]


def test_a_closed_connection_stays_closed_and_one_that_ends_takes_no_more() -> None:
    """Its descriptor may be another client's by then."""
    for now in L:
        assert {then for then in L if follows(L, now, then)} == LIVES[now]


def test_what_waits_for_memory_is_read_on_with_its_turn_alone() -> None:
    """A large frame would be read into a buffer that it does not have yet."""
    for now in Q:
        assert {then for then in Q if follows(Q, now, then)} == READS[now]
