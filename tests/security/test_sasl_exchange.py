"""The server's exchange: what follows what, when sessions end, and Kafka's words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.errors import ErrorCode
from kbroker.security.principal import AuthenticationState, Principal, Session
from kbroker.security.sasl.exchange import OfferedMechanism, SaslExchange, SaslServer, SaslStats
from kbroker.security.sasl.mechanism import Authenticated, SaslError, ServerMechanism
from kbroker.security.sasl.plain import PlainServer, PlainUsers

ALICE, BOB = b"\0alice\0a", b"\0bob\0b"


class Clock:
    seconds = 1_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Fixed(ServerMechanism):
    """Says at once who the client is, or refuses."""

    def __init__(self, outcome: Authenticated | None) -> None:
        self._outcome = outcome
        self.outcome = None

    def evaluate(self, token: bytes) -> bytes:
        if self._outcome is None:
            raise SaslError("a secret reason")
        self.outcome = self._outcome
        return b"done"


class Side:
    """A client's connection, as the exchange sees it."""

    def __init__(self, outcome: Authenticated | None = None, max_reauth_ms: int = 0) -> None:
        self.clock, self.stats = Clock(), SaslStats()
        self.failures: list[tuple[str, str, str]] = []
        users = PlainUsers({"user_alice": "a", "user_bob": "b"})
        mechanisms = {
            "PLAIN": OfferedMechanism(lambda: PlainServer(users.accepts), max_reauth_ms),
            "OTHER": OfferedMechanism(lambda: Fixed(outcome), max_reauth_ms),
        }
        server = SaslServer(mechanisms, self.clock, 100, self.stats, lambda *failed: self.failures.append(failed))
        self.exchange = SaslExchange(server)
        self.session = Session(host="10.0.0.1", exchange=self.exchange)

    def name(self, mechanism: str, version: int = 1) -> tuple[int, AuthenticationState]:
        step = self.exchange.name_mechanism(self.session, mechanism, version)
        self.session = step.session
        return step.error, step.session.state

    def token(self, token: bytes) -> tuple[int, str | None, int]:
        step = self.exchange.take_token(self.session, token)
        self.session = step.session
        return step.error, step.message, step.lifetime_ms

    def log_in(self, token: bytes = ALICE, mechanism: str = "PLAIN") -> tuple[int, str | None, int]:
        assert self.name(mechanism) == (0, AuthenticationState.AUTHENTICATE)
        return self.token(token)


def test_a_client_is_whom_it_proves_to_be() -> None:
    """Nobody could log in, or everybody as somebody."""
    side = Side()
    assert not side.session.is_authenticated
    assert side.log_in() == (0, None, 0)
    assert (side.session.principal, side.session.is_authenticated) == (Principal("User", "alice"), True)
    assert side.session.expires_at is None and not side.session.by_token
    assert side.stats.succeeded == {"PLAIN": 1}


def test_a_mechanism_that_the_listener_has_not_is_refused_with_those_that_it_has() -> None:
    """A client would not know what to use instead."""
    side = Side()
    assert side.name("GSSAPI") == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, AuthenticationState.FAILED)
    assert side.exchange.mechanisms == ["PLAIN", "OTHER"]
    assert side.stats.failed == {"none": 1}
    assert "GSSAPI" not in str(side.failures)


def test_what_comes_out_of_order_ends_the_exchange() -> None:
    """A token could be taken by no mechanism, or an exchange be begun anew until it works."""
    side = Side()
    step = side.exchange.take_token(side.session, ALICE)
    assert step.has_failed and step.is_silent
    side = Side()
    side.name("PLAIN")
    assert side.name("PLAIN") == (ErrorCode.ILLEGAL_SASL_STATE, AuthenticationState.FAILED)
    side = Side()
    side.log_in()
    assert side.token(ALICE)[0] == ErrorCode.ILLEGAL_SASL_STATE
    assert side.session.is_authenticated, "as in Kafka"


def test_why_a_client_fails_is_said_in_kafkas_words_and_no_more() -> None:
    """A client would learn which users there are, or its owner would not find the mistake."""
    side = Side()
    assert side.log_in(b"\0alice\0x")[:2] == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    assert side.session.state is AuthenticationState.FAILED
    side = Side(None)
    words = "Authentication failed during authentication due to invalid credentials with SASL mechanism OTHER"
    assert side.log_in(b"", "OTHER")[:2] == (ErrorCode.SASL_AUTHENTICATION_FAILED, words)
    assert side.failures == [("10.0.0.1", "OTHER", "a secret reason")]
    assert side.stats.failed == {"OTHER": 1}


@pytest.mark.parametrize(
    ("outcome", "max_reauth_ms", "lifetime_ms"),
    [
        (Authenticated("alice"), 0, None),
        (Authenticated("alice"), 5_000, 5_000),
        (Authenticated("alice", 1_000_000 + 3_000), 0, 3_000),
        (Authenticated("alice", 1_000_000 + 3_000), 5_000, 3_000),
        (Authenticated("alice", 1_000_000 + 9_000), 5_000, 5_000),
        (Authenticated("alice", 1_000_000 - 1), 5_000, 0),
    ],
)
def test_a_session_lasts_as_long_as_credential_and_settings_allow(
    outcome: Authenticated, max_reauth_ms: int, lifetime_ms: int | None
) -> None:
    """A token's client would stay for ever, or one without an end would be sent away."""
    side = Side(outcome, max_reauth_ms)
    assert side.log_in(b"", "OTHER") == (0, None, lifetime_ms or 0)
    ends = None if lifetime_ms is None else side.clock.seconds + lifetime_ms / 1000
    assert side.session.expires_at == ends
    if ends is not None:
        assert not side.session.has_expired(ends) and side.session.has_expired(ends + 0.001)


def test_a_client_authenticates_again_as_the_same_by_the_same_mechanism() -> None:
    """A connection could change hands, or a client that renews its session in time would be sent away."""
    side = Side(Authenticated("alice"), 5_000)
    side.log_in()
    side.clock.seconds += 4
    assert side.log_in() == (0, None, 5_000)
    assert side.session.expires_at == side.clock.seconds + 5
    assert (side.stats.succeeded, side.stats.succeeded_again) == ({"PLAIN": 1}, {"PLAIN": 1})
    side.clock.seconds += 4
    error, message, _ = side.log_in(BOB)
    assert error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert side.session.state is AuthenticationState.FAILED
    assert side.stats.failed_again == {"PLAIN": 1}


def test_another_mechanism_is_no_renewal() -> None:
    """A session that began with a strong proof could go on with a weak one."""
    side = Side(Authenticated("alice"), 5_000)
    side.log_in()
    assert side.name("OTHER")[0] == 0, "Kafka says so only with the token"
    error, message, _ = side.token(b"")
    assert error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert message == (
        "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    )
    assert side.session.state is AuthenticationState.FAILED


def test_a_failed_renewal_ends_the_connection() -> None:
    """A user whose password was changed would stay by trying."""
    side = Side(max_reauth_ms=5_000)
    side.log_in()
    assert side.log_in(b"\0alice\0old")[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert side.session.state is AuthenticationState.FAILED
    side = Side(max_reauth_ms=5_000)
    side.log_in()
    assert side.name("NEW") == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, AuthenticationState.FAILED)


def test_renewals_come_a_second_apart_and_only_where_sessions_end() -> None:
    """A client could keep the broker busy with proofs."""
    side = Side()
    side.log_in()
    assert side.name("PLAIN") == (ErrorCode.ILLEGAL_SASL_STATE, AuthenticationState.AUTHENTICATED)
    side = Side(max_reauth_ms=5_000)
    side.log_in()
    side.log_in()
    side.clock.seconds += 0.999
    assert side.name("PLAIN") == (ErrorCode.ILLEGAL_SASL_STATE, AuthenticationState.AUTHENTICATED)
    side.clock.seconds += 0.001
    assert side.log_in()[0] == 0


def test_frames_without_a_header_are_expected_behind_the_first_version_alone() -> None:
    """Tokens of old clients would be read as requests, or requests as tokens."""
    side = Side()
    side.name("PLAIN", version=0)
    assert side.session.takes_tokens
    side.token(ALICE)
    assert not side.session.takes_tokens
    side = Side()
    side.name("PLAIN", version=1)
    assert not side.session.takes_tokens


def test_sessions_are_equal_by_what_they_are() -> None:
    """A session would differ from itself by how its client came to it, or show its exchange in a log."""
    side = Side()
    assert side.session == replace(side.session, exchange=None)
    assert "exchange" not in repr(side.session)


def test_a_mechanism_that_cannot_begin_is_a_failed_login() -> None:
    """A keytab that cannot be read any more would end connections with a traceback in the log."""

    def broken() -> ServerMechanism:
        raise SaslError("the keytab cannot be read")

    side = Side(max_reauth_ms=5_000)
    server = side.exchange._server
    side.exchange = SaslExchange(replace(server, mechanisms={**server.mechanisms, "OTHER": OfferedMechanism(broken)}))
    assert side.name("OTHER") == (ErrorCode.SASL_AUTHENTICATION_FAILED, AuthenticationState.FAILED)
    assert side.failures == [("10.0.0.1", "OTHER", "the keytab cannot be read")]
