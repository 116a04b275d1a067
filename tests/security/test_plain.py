"""PLAIN: Kafka's words for what is wrong."""

from __future__ import annotations

import pytest

from kbroker.security.sasl.mechanism import Authenticated, AuthenticationRefusedError, Login, SaslError
from kbroker.security.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers(
    {"username": "broker", "password": "b", "user_alice": "pencil", "user_": "empty", "user_j\u00f6rg": "\u20ac"}
)


@pytest.mark.parametrize(("name", "password"), [("alice", "pencil"), ("j\u00f6rg", "\u20ac")])
def test_a_user_with_the_password_is_let_in(name: str, password: str) -> None:
    """Nobody could log in."""
    client, end = PlainClient(Login(name, password)), PlainServer(USERS.accepts)
    client.evaluate(end.evaluate(client.first()))
    assert end.outcome == Authenticated(name)
    assert client.complete
    with pytest.raises(SaslError):
        end.evaluate(client.first())


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0pencil", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0pencil\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0pencil\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0broker\0b", "Authentication failed: Invalid username or password"),
        (b"\0alice\0pencil\xff", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0pencil",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_what_is_wrong_has_kafkas_words(token: bytes, words: str) -> None:
    """A client would not find out what is wrong, or somebody would be let in."""
    end = PlainServer(USERS.accepts)
    with pytest.raises(AuthenticationRefusedError) as caught:
        end.evaluate(token)
    assert str(caught.value) == words
    assert end.outcome is None
