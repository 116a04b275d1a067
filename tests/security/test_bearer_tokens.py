"""Bearer tokens: which are accepted, and how their issuer's keys are followed."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey

from kbroker.security.sasl.jwks import MOST_BYTES, Jwks, JwksError, JwksPlan, parse_keys
from kbroker.security.sasl.mechanism import Authenticated, AuthenticationRefusedError, SaslError
from kbroker.security.sasl.oauthbearer import (
    BearerToken,
    InvalidTokenError,
    OAuthBearerClient,
    OAuthBearerServer,
)
from kbroker.security.sasl.token_check import TokenCheck, TokenRules
from tests.security.bearer import NOW, Issuer, signed_with_text, unsigned

ISSUER, OTHER = Issuer(), Issuer()
PLAN = JwksPlan("https://issuer.example/jwks")


def keys_of(issuer: Issuer) -> Jwks:
    keys = Jwks(PLAN, lambda plan: issuer.jwks())
    keys.load()
    return keys


KEYS = keys_of(ISSUER)


def check(token: str, rules: TokenRules = TokenRules()) -> BearerToken:  # noqa: B008
    return TokenCheck(rules, KEYS, lambda: NOW * 1000)(token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "Ed25519"])
def test_a_token_that_the_issuer_signed_is_accepted(algorithm: str) -> None:
    """Nobody could log in."""
    assert check(ISSUER.token({}, algorithm)) == BearerToken("alice", (NOW + 60) * 1000)


@pytest.mark.parametrize(
    ("rules", "claims"),
    [
        (TokenRules(issuer="me"), {"iss": "me"}),
        (TokenRules(audiences=("a", "b")), {"aud": "b"}),
        (TokenRules(audiences=("a", "b")), {"aud": ["c", "a"]}),
        (TokenRules(subject_claim="user", scope_claim="scp"), {"user": "alice", "sub": None, "scp": ["x"]}),
        (TokenRules(), {"exp": NOW - 29, "nbf": NOW + 29}),
        (TokenRules(), {"scope": "read write"}),
    ],
)
def test_what_the_settings_ask_of_a_token(rules: TokenRules, claims: dict[str, Any]) -> None:
    """A token that fits would be refused."""
    assert check(ISSUER.token(claims), rules).principal == "alice"


@pytest.mark.parametrize(
    ("rules", "claims", "reason"),
    [
        (TokenRules(), {"exp": NOW - 31}, "has expired"),
        (TokenRules(skew_seconds=0), {"exp": NOW}, "has expired"),
        (TokenRules(), {"exp": None}, "no expiration time"),
        (TokenRules(), {"exp": "soon"}, "no time|no JSON|signature"),
        (TokenRules(), {"exp": True}, "no time|signature"),
        (TokenRules(), {"exp": 1e300}, "no time"),
        (TokenRules(), {"iat": None}, "issued"),
        (TokenRules(), {"nbf": NOW + 31}, "not valid yet"),
        (TokenRules(issuer="me"), {"iss": "you"}, "another issuer"),
        (TokenRules(issuer="me"), {}, "another issuer"),
        (TokenRules(audiences=("a",)), {"aud": "b"}, "another audience"),
        (TokenRules(audiences=("a",)), {}, "another audience"),
        (TokenRules(), {"aud": "a"}, "names none"),
        (TokenRules(), {"sub": None}, "has no sub"),
        (TokenRules(), {"sub": " "}, "has no sub"),
        (TokenRules(), {"sub": ["alice"]}, "has no sub|signature"),
        (TokenRules(subject_claim="user"), {}, "has no user"),
        (TokenRules(), {"scope": [1]}, "no text"),
    ],
)
def test_a_token_that_does_not_fit_is_refused(rules: TokenRules, claims: dict[str, Any], reason: str) -> None:
    """A token that has expired, or was made for another service, would log in here."""
    with pytest.raises(InvalidTokenError, match=reason):
        check(ISSUER.token(claims), rules)


CLAIMS = {"sub": "alice", "iat": NOW, "exp": NOW + 60}
NO_KEYS = [
    b"",
    b"[]",
    b"{}",
    b'{"keys": []}',
    b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
    b'{"keys": [{"kty": "RSA"}]}',
]
FORGED = {
    "nobody signed it": unsigned({"alg": "none"}, CLAIMS),
    "nobody signed it, in other letters": unsigned({"alg": "NoNe"}, CLAIMS),
    "no algorithm": unsigned({}, CLAIMS),
    "an algorithm that is no text": unsigned({"alg": ["RS256"]}, CLAIMS),
    "by a secret": jwt.encode({"alg": "HS256", "kid": "rsa"}, CLAIMS, OctKey.import_key("s" * 32)),
    "by the public key as a secret": signed_with_text(ISSUER.keys["RS256"].as_pem(private=False), CLAIMS),
    "by another issuer": OTHER.token({}),
    "by another issuer, without a key id": OTHER.token({}, kid=None),
    "with a key of its own": OTHER.token({}, kid=None, jwk=OTHER.keys["RS256"].as_dict(private=False)),
    "with other claims": ISSUER.token({}).split(".")[0]
    + "."
    + ISSUER.token({"sub": "root"}).split(".")[1]
    + "."
    + ISSUER.token({}).split(".")[2],
    "cut off": ISSUER.token({})[:-10],
    "without a signature": ".".join(ISSUER.token({}).split(".")[:2]) + ".",
    "of two parts": "a.b",
    "of nothing": "..",
    "with an extension": unsigned({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": True}, CLAIMS, b"x"),
    "too long": "a" * 70_000,
}


@pytest.mark.parametrize("name", FORGED)
def test_a_token_that_the_issuer_did_not_sign_is_refused(name: str) -> None:
    """Anybody could be anybody."""
    with pytest.raises(InvalidTokenError) as caught:
        check(FORGED[name])
    assert FORGED[name] not in str(caught.value)


@settings(max_examples=200)
@given(
    st.text(alphabet="abcXYZ019-_.", max_size=80)
    | st.binary().map(lambda part: unsigned({"alg": "RS256"}, CLAIMS, part))
)
def test_any_text_is_refused(token: str) -> None:
    """A client could end the broker's loop with an error."""
    with pytest.raises(InvalidTokenError):
        check(token)


def test_a_client_hears_that_its_token_is_refused_and_acknowledges() -> None:
    """Clients would hang, or would not find out that the token is the reason."""
    client, end = OAuthBearerClient(FORGED["nobody signed it"]), OAuthBearerServer(check)
    answer = end.evaluate(client.first())
    assert json.loads(answer) == {"status": "invalid_token"}
    acknowledgement = client.evaluate(answer)
    assert acknowledgement == b"\x01"
    with pytest.raises(AuthenticationRefusedError, match="invalid_token"):
        end.evaluate(acknowledgement)
    # A good token does not come after it either.
    with pytest.raises(SaslError):
        end.evaluate(OAuthBearerClient(ISSUER.token({})).first())
    assert end.outcome is None and not client.complete


def test_a_good_token_logs_its_subject_in_until_it_expires() -> None:
    """A session would outlive its token."""
    client, end = OAuthBearerClient(ISSUER.token({}), {"traceId": "1"}), OAuthBearerServer(check)
    client.evaluate(end.evaluate(client.first()))
    assert end.outcome == Authenticated("alice", (NOW + 60) * 1000)
    assert client.complete


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01x",
        b"\xff",
    ],
)
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    """The broker would guess what a client means."""
    with pytest.raises(SaslError):
        OAuthBearerServer(check).evaluate(message)


def test_a_client_may_not_be_another_than_its_token() -> None:
    """A user could act for any other."""
    message = OAuthBearerClient(ISSUER.token({})).first().replace(b"n,,", b"n,a=bob,")
    with pytest.raises(AuthenticationRefusedError, match="different from the token's principal"):
        OAuthBearerServer(check).evaluate(message)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', b'{"keys": [{"kty": "RSA"}]}'],
)
def test_what_holds_no_public_key_is_no_key_set(content: bytes) -> None:
    """An issuer's error page, or a shared secret, would take the place of its keys."""
    with pytest.raises(JwksError):
        parse_keys(PLAN, content)


class Source:
    """What a URL gives: keys, or a failure; counts how often it was asked."""

    def __init__(self, issuer: Issuer | None) -> None:
        self.issuer = issuer
        self.count = 0
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, plan: JwksPlan) -> bytes:
        self.count += 1
        self._loop.call_soon_threadsafe(self.asked.set)
        if self.issuer is None:
            raise JwksError("not there")
        return self.issuer.jwks()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_an_issuer_that_does_not_answer_is_asked_again_and_its_old_keys_count() -> None:
    """A broker would not start, or lose all its clients, while an identity provider is down."""

    async def main() -> None:
        source = Source(None)
        keys = Jwks(JwksPlan("https://x", refresh_ms=1, backoff_ms=1, backoff_max_ms=2), source)
        await keys.start()
        assert not keys.candidates(None, "RSA")
        source.issuer = ISSUER
        await until(lambda: keys.candidates("rsa", "RSA"))
        before = keys.failed_count
        source.issuer = None
        await until(lambda: keys.failed_count > before + 2)
        assert keys.candidates("rsa", "RSA")
        source.issuer = OTHER
        theirs = OTHER.keys["RS256"].as_dict(private=False)["n"]
        await until(lambda: keys.candidates("rsa", "RSA")[0].as_dict()["n"] == theirs)
        keys.close()
        await asyncio.sleep(0)
        count = source.count
        await asyncio.sleep(0.01)
        assert source.count == count

    asyncio.run(main())


def test_a_key_that_is_not_known_has_the_keys_read_once() -> None:
    """An issuer's new key would be unknown for an hour; or anybody could have the issuer asked all the time."""

    async def main() -> None:
        source = Source(ISSUER)
        keys = Jwks(JwksPlan("https://x"), source)
        await keys.start()
        for _ in range(10):
            assert not keys.candidates("new", "RSA")
        await until(lambda: keys.refreshed_count)
        for _ in range(10):
            keys.candidates("newer", "RSA")
        assert source.count == 2
        keys.close()

    asyncio.run(main())


def test_a_file_without_keys_ends_the_start(tmp_path: Path) -> None:
    """A listener would be there that nobody can use."""

    async def main() -> None:
        path = tmp_path / "keys of mine.json"
        keys = Jwks(JwksPlan(path.as_uri()))
        with pytest.raises(JwksError, match="cannot be read"):
            await keys.start()
        path.write_bytes(ISSUER.jwks())
        await keys.start()
        assert keys.candidates("ec", "EC")
        keys.close()

    asyncio.run(main())


class Pages(BaseHTTPRequestHandler):
    """An issuer's server."""

    content: ClassVar[bytes] = ISSUER.jwks()

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/jwks" else 500)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *args: Any) -> None:
        return


def test_keys_are_read_from_an_issuers_server() -> None:
    """Tokens of an identity provider would be refused, or its error page be taken for keys."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            keys = Jwks(JwksPlan(f"{address}/jwks"))
            keys.load()
            assert {str(each.key_type) for each in keys._keys} == {"RSA", "EC", "OKP"}
            for wrong in (f"{address}/other", f"{address[:-1]}x/jwks", "ftp://127.0.0.1/jwks"):
                with pytest.raises(JwksError, match="cannot be read"):
                    Jwks(JwksPlan(wrong)).load()
            Pages.content = b" " * (MOST_BYTES + 1)
            with pytest.raises(JwksError, match="more than"):
                keys.load()
            assert keys.candidates("rsa", "RSA"), "and the old ones count"
        finally:
            server.shutdown()
            thread.join()
