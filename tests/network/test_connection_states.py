"""The states of a connection: which may follow which."""

from __future__ import annotations

from kbroker._fast.net.connection_states import RequestState, SendState, follows

R, S = RequestState, SendState
REQUESTS = {
    R.READY: {R.READY, R.SERVING, R.THROTTLED},
    R.SERVING: {R.READY, R.SERVING, R.DEFERRED, R.THROTTLED},
    R.DEFERRED: {R.READY, R.SERVING},
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
