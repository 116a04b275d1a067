"""The security of clients: settings in Kafka's and in librdkafka's names, and connections by them.

Also of `kbroker.security.client.client_security`, `kbroker.security.client.java_settings`,
`kbroker.security.client.librdkafka_settings`, `kbroker.security.client.oauth_tokens`, `kbroker.cli.command_config`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import click
import pytest

from kbroker.cli.command_config import read_command_config
from kbroker.security.client.client_security import ClientSecurityError
from kbroker.security.client.java_settings import java_security
from kbroker.security.client.librdkafka_settings import librdkafka_security, to_librdkafka
from kbroker.security.client.oauth_tokens import OAuthTokenError, TokenEndpoint, TokenFile
from tests.security.certificates import PASSWORD, Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def scram(**options: str) -> str:
    pairs = " ".join(f'{key}="{value}"' for key, value in options.items())
    return f"{SCRAM} required {pairs};"


def test_a_client_of_kafka_logs_in_by_the_same_settings() -> None:
    """Files that people have for Kafka's tools would have to be written anew."""
    security = java_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": scram(username="alice", password="in wonderland;"),
        }
    )
    assert (security.encrypts, security.authenticates, security.mechanism) == (False, True, "SCRAM-SHA-512")
    assert security.login is not None and security.login.name == "alice"
    assert security.client_mechanism().name == "SCRAM-SHA-512"
    assert to_librdkafka(security) == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "in wonderland;",
    }
    assert "wonderland" not in repr(security)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS is none of"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"},
            "sasl.jaas.config: Login module control flag",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} required username=a;",
            },
            "has no password",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;",
            },
            "the login module is none of",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{OAUTH} required;",
            },
            "token.endpoint.url is not set",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere", "ssl.truststore.type": "X"}, None),
    ],
)
def test_settings_that_make_no_connection_are_named(settings: dict[str, str], said: str | None) -> None:
    """A command would fail with a traceback, or time out, in place of the setting's name."""
    if said is None:
        with pytest.raises(ValueError, match=r"ssl\.truststore"):
            java_security(settings).context()
        return
    with pytest.raises(ClientSecurityError, match=said):
        java_security(settings)


def test_stores_of_java_are_given_to_librdkafka_as_pem(tmp_path: Path) -> None:
    """Commands could not be told whom to trust by the file that Kafka's tools have."""
    authority = Authority()
    security = java_security({"security.protocol": "SSL", **authority.write(tmp_path)})
    settings = to_librdkafka(security)
    assert settings["ssl.ca.pem"] == authority.pem
    assert settings["ssl.endpoint.identification.algorithm"] == "https"
    assert "PRIVATE KEY" in settings["ssl.key.pem"] and settings["ssl.certificate.pem"].count("BEGIN") == 2
    back = librdkafka_security(settings)
    assert back.tls is not None and back.tls.identifies_endpoints
    assert security.context().check_hostname and back.context().check_hostname
    wrong = {**settings, "enable.ssl.certificate.verification": "false"}
    assert not librdkafka_security(wrong).context().check_hostname


def test_settings_of_librdkafka_are_read_from_files_too(tmp_path: Path) -> None:
    """`-X ssl.ca.location` would count for some commands and not for others."""
    authority = Authority()
    client = authority.certify("client", None)
    for name, text in (("ca", authority.pem), ("cert", client.certificate_pem), ("key", client.key_pem)):
        (tmp_path / name).write_text(text)
    (tmp_path / "client.p12").write_bytes(client.pkcs12())
    base = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca")}
    files = {"ssl.certificate.location": str(tmp_path / "cert"), "ssl.key.location": str(tmp_path / "key")}
    store = {"ssl.keystore.location": str(tmp_path / "client.p12"), "ssl.keystore.password": PASSWORD}
    for keys in ({}, files, store):
        librdkafka_security({**base, **keys}).context()
    with pytest.raises(ClientSecurityError, match="go together"):
        librdkafka_security({**base, "ssl.key.location": str(tmp_path / "key")})
    with pytest.raises(ClientSecurityError, match="cannot be read"):
        librdkafka_security({**base, **files, "ssl.key.location": str(tmp_path / "gone")})
    with pytest.raises(ClientSecurityError, match=r"sasl\.password is not set"):
        librdkafka_security({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "a"})


class Issuer(BaseHTTPRequestHandler):
    """A token endpoint that says what a test wants."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"")
    asked: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], parse_qs(body)))
        status, answer = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def issuer() -> Iterator[str]:
    Issuer.asked = []
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_token_is_kept_for_most_of_its_life(issuer: str) -> None:
    """Each connection would ask the issuer, or take a token that has expired."""
    now = [0.0]
    source = TokenEndpoint(issuer, "id", "s3cret", "read write", now=lambda: now[0])
    for seconds, token in ((0.0, "one"), (79.0, "one"), (81.0, "two")):
        Issuer.answer = 200, json.dumps({"access_token": token, "expires_in": 100}).encode()
        now[0] = seconds
        assert source.token() == token
    assert len(Issuer.asked) == 2
    authorization, form = Issuer.asked[0]
    assert authorization == "Basic aWQ6czNjcmV0"
    assert form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert "s3cret" not in repr(source) and "two" not in repr(source)


@pytest.mark.parametrize(
    ("answer", "said"),
    [((401, b"{}"), "HTTP status 401"), ((200, b"{}"), "no access_token"), ((200, b"[]"), "no access_token")],
)
def test_an_issuer_that_gives_no_token_is_named(issuer: str, answer: tuple[int, bytes], said: str) -> None:
    """The login would fail without a hint that the broker has nothing to do with it."""
    Issuer.answer = answer
    with pytest.raises(OAuthTokenError, match=said):
        TokenEndpoint(issuer, "id", "secret").token()


def test_a_token_in_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    """A token that something else renews would be used beyond its life."""
    path = tmp_path / "token"
    security = java_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
            "sasl.jaas.config": f'{OAUTH} required extension_traceId="7";',
        }
    )
    assert security.tokens == TokenFile(path) and security.extensions == {"traceId": "7"}
    with pytest.raises(OAuthTokenError, match="no token that can be read"):
        security.client_mechanism()
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        assert token.encode() in security.client_mechanism().first()
    with pytest.raises(ClientSecurityError, match="token endpoint alone"):
        to_librdkafka(security)


def test_a_file_of_settings_may_have_the_names_of_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People have files for Kafka's tools, and others for librdkafka's clients."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nbootstrap.servers=x:1\nclient.id=me\n"
        f"request.timeout.ms=5000\nsasl.jaas.config={scram(username='alice', password='pw')}\n"
    )
    assert read_command_config(path) == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "pw",
        "client.id": "me",
    }
    assert "request.timeout.ms has no effect here" in capsys.readouterr().err
    path.write_text("security.protocol=sasl_ssl\nsasl.username=alice\nbootstrap.servers=x:1\n")
    assert read_command_config(path) == {"security.protocol": "sasl_ssl", "sasl.username": "alice"}
    path.write_text("sasl.jaas.config=nonsense\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    with pytest.raises(click.UsageError, match=r"sasl\.jaas\.config"):
        read_command_config(path)
