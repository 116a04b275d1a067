"""What a registry is asked, and what becomes of answers that are none: `kbroker.registry.client`.

Also of `kbroker.authorities`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.registry import client as client_module
from kbroker.registry.client import AVRO, Registry, RegistryPlace, Schema
from kbroker.registry.errors import RegistryAwayError, SchemaError, UnknownSchemaError
from tests.ports import free_port
from tests.registry.stand_in import StandIn, stand_in
from tests.security.tls.authority import Authority

TEXT = '"string"'


@pytest.fixture(name="registry")
def _registry() -> Iterator[StandIn]:
    with stand_in() as registry:
        yield registry


def asked(registry: StandIn, user_info: str = "") -> Registry:
    return Registry(RegistryPlace((registry.url,), user_info))


def test_a_login_is_sent_and_never_shown(registry: StandIn) -> None:
    """A registry that asks for one could not be used, or a log have the password."""
    registry.user_info = "user:se:cret"
    number = registry.add("s", TEXT)
    assert asked(registry, "user:se:cret").schema(number) == Schema(AVRO, TEXT)
    with pytest.raises(RegistryAwayError, match="HTTP status 401") as refused:
        asked(registry, "user:wrong").has(number)
    assert "wrong" not in str(refused.value)
    assert "se:cret" not in repr(RegistryPlace(("http://h",), "user:se:cret"))


def test_tls_is_checked_against_the_authority_that_is_named(tmp_path: Path) -> None:
    """Schemas, and the password, would be anybody's on the way."""
    authority = Authority()
    issued = authority.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.write_pem(tmp_path / "server.pem"))
    trusted = str(authority.write_pem(tmp_path / "ca.pem"))
    other = str(Authority().write_pem(tmp_path / "other.pem"))
    with stand_in(tls=context) as registry:
        number = registry.add("s", TEXT)
        assert Registry(RegistryPlace((registry.url,), ca_file=trusted)).has(number)
        for ca_file in (other, ""):
            with pytest.raises(RegistryAwayError, match="CERTIFICATE_VERIFY_FAILED"):
                Registry(RegistryPlace((registry.url,), ca_file=ca_file)).has(number)
        (tmp_path / "none.pem").write_text("nothing")
        with pytest.raises(SchemaError, match="holds no certificates"):
            Registry(RegistryPlace((registry.url,), ca_file=str(tmp_path / "none.pem"))).has(number)


def test_an_authority_without_identifiers_of_keys_is_trusted_by_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry of a company, which Java's clients take, would be away for a broker on Python 3.13."""
    default = ssl.create_default_context

    def as_strict_as_since_3_13(**given: str | None) -> ssl.SSLContext:
        context = default(**given)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_strict_as_since_3_13)
    authority = Authority()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(authority.issue().write_pem(tmp_path / "server.pem"))
    with stand_in(tls=served) as registry:
        number = registry.add("s", TEXT)
        place = RegistryPlace((registry.url,), ca_file=str(authority.write_pem(tmp_path / "ca.pem")))
        assert Registry(place).has(number)


def test_a_redirect_is_not_followed(registry: StandIn) -> None:
    """The login would go to whoever the answer names."""
    registry.status = 302
    with pytest.raises(RegistryAwayError, match="HTTP status 302"):
        asked(registry, "user:secret").has(1)
    assert registry.asked == ["/schemas/ids/1"]


def test_the_next_url_is_asked_where_one_does_not_answer(registry: StandIn) -> None:
    """One node of a registry that is down would stop producers."""
    gone = f"http://127.0.0.1:{free_port()}"
    number = registry.add("s", TEXT)
    assert Registry(RegistryPlace((gone, registry.url + "/"))).has(number)
    assert not Registry(RegistryPlace((gone, registry.url))).has(number + 1)
    with pytest.raises(RegistryAwayError, match=r"Connection refused.*Connection refused"):
        Registry(RegistryPlace((gone, gone))).has(number)


def test_a_404_that_is_no_registrys_is_no_answer(registry: StandIn) -> None:
    """With a wrong path in the URL every record would be refused for good."""
    with pytest.raises(UnknownSchemaError):
        asked(registry).schema(1)
    registry.status = 404
    with pytest.raises(RegistryAwayError, match="HTTP status 404"):
        asked(registry).has(1)


def test_circles_and_crowds_of_references_end(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry could have the broker ask for ever."""
    one = [{"name": "b", "subject": "b", "version": 1}]
    registry.add("a", "A", references=[{"name": "b", "subject": "b", "version": 1}])
    number = registry.add("b", "B", references=[{"name": "a", "subject": "a", "version": 1}])
    assert dict(asked(registry).schema(number).references) == {"a": "A", "b": "B"}
    monkeypatch.setattr(client_module, "MOST_REFERENCES", 1)
    with pytest.raises(SchemaError, match="more than 1 references"):
        asked(registry).schema(registry.add("c", "C", references=one))


@pytest.mark.parametrize(
    "made",
    [
        {"schemaType": "THRIFT"},
        {"schema": 7},
        {"references": {"a": 1}},
        {"references": [7]},
        {"references": [{"name": "a"}]},
    ],
)
def test_an_answer_of_another_shape_is_an_error_with_a_reason(registry: StandIn, made: dict[str, object]) -> None:
    """The look would end with a traceback."""
    registry.add("s", TEXT)
    registry.schemas[0].update(made)
    with pytest.raises(SchemaError):
        asked(registry).schema(1)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"[" * 100_000])
def test_what_is_no_registry_is_said(body: bytes) -> None:
    """A wrong port would be taken for a registry without schemas."""
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(RegistryAwayError, match="no schema registry"):
            Registry(RegistryPlace((f"http://127.0.0.1:{port}",))).has(1)
        thread.join()


def test_an_answer_that_is_too_long_is_not_read(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry could fill the broker's memory."""
    number = registry.add("s", '"' + "x" * 2000 + '"')
    monkeypatch.setattr(client_module, "MOST_ANSWER_BYTES", 1000)
    with pytest.raises(SchemaError, match="more than 1000 bytes"):
        asked(registry).schema(number)
