"""GSSAPI's exchange, over a library that stands in for Kerberos."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig
from kbroker.security.plaintext import Plaintext
from kbroker.security.sasl import gssapi, settings
from kbroker.security.sasl.gssapi import NO_LAYER, GssapiServer
from kbroker.security.sasl.kerberos_names import KerberosNames
from kbroker.security.sasl.listeners import Sasl
from kbroker.security.sasl.mechanism import Authenticated, SaslError

NAMES = KerberosNames()
OPTIONS = {"principal": "kafka/broker@REALM", "keyTab": "/etc/kafka.keytab"}


class GSSError(Exception):
    """What the library raises."""


class Context:
    """A context of two tokens, of a client of the given principal."""

    def __init__(self, client: str) -> None:
        self.initiator_name = client
        self.complete = False
        self._steps = 0

    def step(self, token: bytes) -> bytes | None:
        if token != b"ticket":
            raise GSSError("bad ticket of somebody")
        self._steps += 1
        self.complete = self._steps == 2
        return b"more" if not self.complete else None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        return SimpleNamespace(message=b"wrapped " + message)

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"wrapped "):
            raise GSSError("not sealed")
        return SimpleNamespace(message=message.removeprefix(b"wrapped "))


@pytest.fixture(name="client")
def _client(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The principal of the client."""
    client = ["alice@REALM"]
    library = SimpleNamespace(
        Name=lambda name, kind: (name, kind),
        NameType=SimpleNamespace(kerberos_principal="kerberos"),
        Credentials=lambda usage, name, store: (usage, name, store),
        SecurityContext=lambda creds, usage: Context(client[0]),
        exceptions=SimpleNamespace(GSSError=GSSError),
    )
    monkeypatch.setattr(gssapi, "_library", lambda: library)
    return client


def through(machine: GssapiServer) -> GssapiServer:
    """The tickets are exchanged, and the layer is offered."""
    assert machine.evaluate(b"ticket") == b"more"
    assert machine.evaluate(b"ticket") == b"wrapped " + NO_LAYER
    return machine


@pytest.mark.parametrize(("principal", "name"), [("alice@REALM", "alice"), ("alice/host@REALM", "alice")])
def test_a_client_is_the_first_part_of_its_principal(client: list[str], principal: str, name: str) -> None:
    """Rights would be those of somebody else than with Kafka."""
    client[0] = principal
    machine = through(GssapiServer(OPTIONS, NAMES))
    assert machine.outcome is None
    assert machine.evaluate(b"wrapped " + NO_LAYER + name.encode()) == b""
    assert machine.outcome == Authenticated(name)
    with pytest.raises(SaslError):
        machine.evaluate(b"ticket")


@pytest.mark.parametrize(
    ("principal", "answer"),
    [
        ("alice@OTHER", b"wrapped " + NO_LAYER),
        ("@REALM", b"wrapped " + NO_LAYER),
        ("alice@REALM", b"wrapped " + NO_LAYER + b"bob"),
        ("alice@REALM", b"wrapped \x04\0\0\0"),
        ("alice@REALM", b"wrapped \x01"),
        ("alice@REALM", NO_LAYER),
    ],
)
def test_what_does_not_fit_is_refused(client: list[str], principal: str, answer: bytes) -> None:
    """A client of any realm, or for anybody else, would be let in."""
    client[0] = principal
    machine = through(GssapiServer(OPTIONS, NAMES))
    with pytest.raises(SaslError):
        machine.evaluate(answer)
    assert machine.outcome is None


def test_a_bad_ticket_is_refused_without_the_librarys_words(client: list[str]) -> None:
    """Whoever asks would learn of tickets of others."""
    with pytest.raises(SaslError) as caught:
        GssapiServer(OPTIONS, NAMES).evaluate(b"forged")
    assert "somebody" not in str(caught.value)


def test_a_keytab_that_cannot_be_used_ends_the_start(client: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener would be there at which nobody can log in."""

    def unusable(**_: object) -> None:
        raise GSSError("no key for somebody")

    monkeypatch.setattr(gssapi._library(), "Credentials", unusable)
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda name: name)
    key = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k" principal="kafka/b@R";'
    config = BrokerConfig.from_mapping({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", key: jaas})
    with pytest.raises(settings.SaslSettingsError, match="Kerberos credentials cannot be used"):
        Sasl(config, SYSTEM_CLOCK, None).listener("SASL_PLAINTEXT", Plaintext())  # type: ignore[arg-type]
