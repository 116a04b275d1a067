"""SCRAM: RFC 5802's arithmetic, both ends, and what a server does not give away."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.metadata.security_image import ScramCredential
from kbroker.security.sasl.mechanism import Authenticated, AuthenticationRefusedError, Login, SaslError
from kbroker.security.sasl.scram_client import ScramClient
from kbroker.security.sasl.scram_messages import escaped, read_client_first, unescaped
from kbroker.security.sasl.scram_server import ScramServer, TokenCredential, UnknownUsers
from kbroker.security.scram import ScramMechanism, credential_of_password

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
CREDENTIALS = {
    ("alice", SHA_256): credential_of_password(SHA_256, "pencil"),
    ("alice", SHA_512): credential_of_password(SHA_512, "pencil", 5000),
    ("a=b,c", SHA_256): credential_of_password(SHA_256, "pencil"),
    ("jorg", SHA_256): credential_of_password(SHA_256, "\u20ac"),
    ("weak", SHA_256): credential_of_password(SHA_256, "pencil", 4095),
}
TOKEN = credential_of_password(SHA_256, "hmac")
UNKNOWN = UnknownUsers(b"secret of a test")


class Users:
    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return CREDENTIALS.get((name, mechanism))

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        return TokenCredential("owner", TOKEN, 99) if token_id == "token-1" else None


def server(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, Users(), UNKNOWN)


def exchange(client: ScramClient, mechanism: ScramMechanism = SHA_256) -> Authenticated | None:
    end = server(mechanism)
    proof = client.evaluate(end.evaluate(client.first()))
    assert proof is not None and end.outcome is None
    client.evaluate(end.evaluate(proof))
    assert client.complete
    return end.outcome


@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [
        (SHA_256, "alice", "pencil"),
        (SHA_512, "alice", "pencil"),
        (SHA_256, "a=b,c", "pencil"),
        (SHA_256, "jorg", "\u20ac"),
    ],
)
def test_a_client_with_the_password_is_the_user(mechanism: ScramMechanism, name: str, password: str) -> None:
    """Nobody could log in."""
    assert exchange(ScramClient(mechanism, Login(name, password)), mechanism) == Authenticated(name)


def test_the_vector_of_rfc_7677() -> None:
    """Both ends could agree with each other and with no other implementation."""
    client = ScramClient(SHA_256, Login("user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.evaluate(first) == final
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of_password(SHA_256, "pencil", 4096, salt)

    class One(Users):
        def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
            return credential

    end = ScramServer(SHA_256, One(), UNKNOWN, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert end.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == first
    assert end.evaluate(final) == last
    client.evaluate(last)
    assert client.complete


def test_a_delegation_token_is_its_owner() -> None:
    """A job with a token would be nobody, or somebody else."""
    assert exchange(ScramClient(SHA_256, Login("token-1", "hmac", by_token=True))) == Authenticated("owner", 99, True)


@pytest.mark.parametrize(
    "login",
    [
        Login("alice", "wrong"),
        Login("nobody", "pencil"),
        Login("weak", "pencil"),
        Login("token-1", "hmac"),
        Login("token-2", "hmac", by_token=True),
        Login("alice", "pencil", by_token=True),
    ],
)
def test_what_is_wrong_is_refused_at_the_same_place_with_the_same_words(login: Login) -> None:
    """A client could find out which users there are."""
    client, end = ScramClient(SHA_256, login), server()
    first = end.evaluate(client.first())
    assert b",i=4096" in first
    proof = client.evaluate(first)
    assert proof is not None
    with pytest.raises(SaslError, match=r"^Invalid client credentials$") as caught:
        end.evaluate(proof)
    assert not isinstance(caught.value, AuthenticationRefusedError)
    assert end.outcome is None


def test_a_user_that_there_is_not_has_always_the_same_salt() -> None:
    """Two questions would show that there is no such user."""

    def salt(name: str) -> bytes:
        return server().evaluate(f"n,,n={name},r=abc".encode()).split(b",")[1]

    assert salt("nobody") == salt("nobody") != salt("nobody-else")


Tamper = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda proof: proof.replace(b",r=", b",r=x"),
        lambda proof: proof.replace(b"c=biws", b"c=eSws"),
        lambda proof: proof[:-8] + b"=",
        lambda proof: proof.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(31)),
        lambda proof: proof.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(64)),
        lambda proof: proof.partition(b",p=")[0] + b",p=",
        lambda proof: proof.partition(b",p=")[0],
        lambda proof: proof + b",x=y",
        lambda proof: b"",
        lambda proof: b"\xff\xfe",
    ],
)
def test_a_proof_that_was_tampered_with_is_refused(tamper: Tamper) -> None:
    """Somebody without the password would be let in."""
    client, end = ScramClient(SHA_256, Login("alice", "pencil")), server()
    proof = client.evaluate(end.evaluate(client.first()))
    assert proof is not None
    with pytest.raises(SaslError):
        end.evaluate(tamper(proof))
    assert end.outcome is None


def test_a_proof_is_good_once_and_for_one_exchange() -> None:
    """What was recorded on the network would log in again."""
    client, end = ScramClient(SHA_256, Login("alice", "pencil")), server()
    proof = client.evaluate(end.evaluate(client.first()))
    assert proof is not None
    end.evaluate(proof)
    with pytest.raises(SaslError):
        end.evaluate(proof)
    other = server()
    other.evaluate(client.first())
    with pytest.raises(SaslError, match="nonce"):
        other.evaluate(proof)
    assert other.outcome is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=a c",
        b"n,,n=alice\0,r=abc",
        b"n,,n=\xff,r=abc",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    """The broker would guess who the client is."""
    with pytest.raises(SaslError):
        server().evaluate(first)


def test_a_client_may_not_be_another_one() -> None:
    """A user could act for any other."""
    with pytest.raises(AuthenticationRefusedError, match="different from username"):
        server().evaluate(b"n,a=bob,n=alice,r=abc")
    assert server().evaluate(b"n,a=alice,n=alice,r=abc").startswith(b"r=abc")


@pytest.mark.parametrize(
    "answer",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=nonce,s=AAAA,i=4096",
        b"r=nonce2,s=AAAA,i=4095",
        b"r=nonce2,s=AAAA,i=999999999",
        b"e=no",
    ],
)
def test_a_client_refuses_a_server_that_is_none(answer: bytes) -> None:
    """A password would be proved to anybody, with as little work as it likes."""
    with pytest.raises(SaslError):
        ScramClient(SHA_256, Login("alice", "pencil"), "nonce").evaluate(answer)


def test_a_client_finds_out_a_server_without_the_credential() -> None:
    """A broker that is not the broker's would be believed."""
    client, end = ScramClient(SHA_256, Login("alice", "pencil")), server()
    client.evaluate(end.evaluate(client.first()))
    for last in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"e=other-error"):
        with pytest.raises(SaslError):
            client.evaluate(last)
    assert not client.complete


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_names_are_escaped_and_back(name: str) -> None:
    """A user whose name has a comma or an equals sign would be another one."""
    assert unescaped(escaped(name)) == name
    if not name.isascii():
        with pytest.raises(SaslError):
            read_client_first(f"n,,n={escaped(name)},r=a".encode())
    else:
        assert read_client_first(f"n,,n={escaped(name)},r=a".encode()).name == name


@settings(max_examples=300)
@given(st.binary(), st.binary())
def test_any_bytes_are_answered_or_refused(first: bytes, second: bytes) -> None:
    """A client could end the broker's loop with an error, or be let in by chance."""
    end = server()
    for token in (b"n,,n=alice,r=" + first, second, b"c=biws," + second):
        try:
            end.evaluate(token)
        except SaslError:
            pass
    assert end.outcome is None
