"""A user that there is not costs the same work as a wrong password: time would tell them apart otherwise.

Time is not measured here, but what is hashed and compared, which is all that takes time in an exchange.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.metadata.security_image import ScramCredential
from kbroker.security import scram
from kbroker.security.sasl import plain, scram_server
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.plain import PlainServer, PlainUsers
from kbroker.security.sasl.scram_server import ScramServer, TokenCredential, UnknownUsers
from kbroker.security.scram import ScramMechanism, credential_of_password

KNOWN = {each: credential_of_password(each, "pencil") for each in ScramMechanism}


class Users:
    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return KNOWN[mechanism] if name == "alice" else None

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        return TokenCredential("alice", KNOWN[mechanism], 9) if token_id == "token" else None


class Counted:
    """A module whose calls are counted, by function and size of what is hashed."""

    def __init__(self, module: Any, work: Counter[tuple[str, int]]) -> None:
        self._module = module
        self._work = work

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._module, name)

        def counted(*args: Any, **named: Any) -> Any:
            self._work[name, sum(len(each) for each in args if isinstance(each, bytes))] += 1
            return function(*args, **named)

        return counted


@pytest.fixture(name="work")
def _work(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    work: Counter[tuple[str, int]] = Counter()
    for module in (scram, scram_server, plain):
        monkeypatch.setattr(module, "hmac", Counted(hmac, work))
    monkeypatch.setattr(scram, "hashlib", Counted(hashlib, work))
    return work


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_does_the_same_for_a_user_that_there_is_not(
    work: Counter[tuple[str, int]], mechanism: ScramMechanism
) -> None:
    """Names of users could be found out by a watch."""
    seen = []
    for name, token in (("alice", ""), ("peter", ""), ("token", ",tokenauth=true"), ("tokyo", ",tokenauth=true")):
        work.clear()
        server = ScramServer(mechanism, Users(), UnknownUsers(b"s"), "ours")
        assert server.evaluate(f"n,,n={name},r=theirs{token}".encode()).endswith(b"i=4096")
        proof = base64.b64encode(bytes(mechanism.key_bytes)).decode()
        with pytest.raises(SaslError, match="Invalid client credentials"):
            server.evaluate(f"c=biws,r=theirsours,p={proof}".encode())
        seen.append(dict(work))
    assert seen[0] and seen[0] == seen[1]
    assert seen[2] == seen[3]


def test_plain_does_the_same_for_a_user_that_there_is_not(work: Counter[tuple[str, int]]) -> None:
    """The same by PLAIN, whose password is compared in constant time whatever its length."""
    users = PlainUsers({"user_alice": "pencil"})
    seen = []
    for name, password in (("alice", "wrong!"), ("peter", "wrong!")):
        work.clear()
        with pytest.raises(SaslError, match="Invalid username or password"):
            PlainServer(users.accepts).evaluate(f"\0{name}\0{password}".encode())
        seen.append(dict(work))
    assert seen[0] and seen[0] == seen[1]
    assert ("compare_digest", 64) in seen[0]
