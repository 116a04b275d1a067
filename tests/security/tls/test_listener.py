"""A broker whose listeners speak TLS, and its clients.

Also of `kbroker.security.listeners`, `kbroker.security.plaintext`, `kbroker.security.tls.listener`,
`kbroker.security.tls.server_context`, `kbroker.security.tls.continuity`, `kbroker.security.tls.library`,
`kbroker.assembly.security_figures`, `kbroker.cli.security.certificates`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kbroker.cli.main import run
from tests.broker_process import BrokerError
from tests.network.raw_client import scrape
from tests.security.tls.authority import Authority
from tests.security.tls.secured import SECRET, WAIT_SECONDS, Secured, round_trip

API_VERSIONS = b"\0\0\0\x0d\0\x12\0\0\x5a\xa5\x17\x07\0\x03abc"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with Secured(tmp_path) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_clients_produce_and_consume_over_tls_and_beside_it(secured: Secured) -> None:
    """A broker could not be put on a network that is not its owner's."""
    secured.start()
    round_trip(secured.of_client())
    round_trip({"bootstrap.servers": f"127.0.0.1:{secured.plain_port}"}, "u")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_has_the_versions_that_its_settings_name(secured: Secured, version: ssl.TLSVersion) -> None:
    """A client would get a version that the settings rule out."""
    enabled = {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
    secured.start(ssl_enabled_protocols=enabled)
    for offered in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = secured.context(minimum_version=offered, maximum_version=offered)
        with socket.create_connection(("127.0.0.1", secured.port), WAIT_SECONDS) as plain:
            if offered is version:
                with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                    assert wrapped.version() == enabled
            else:
                with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
                    context.wrap_socket(plain, server_hostname="localhost")


def test_a_listener_has_the_suites_that_its_settings_name(secured: Secured) -> None:
    """A client would choose one that the owner of the broker holds for weak."""
    secured.start(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    with secured.wrapped() as wrapped:
        assert wrapped.cipher()[:2] == ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2")  # type: ignore[index]


@pytest.mark.parametrize(
    ("client_auth", "shows", "is_served"),
    [
        ("none", None, True),
        ("requested", None, True),
        ("requested", "good", True),
        ("requested", "other", False),
        ("required", None, False),
        ("required", "good", True),
        ("required", "other", False),
        ("required", "expired", False),
    ],
)
def test_clients_show_certificates_where_the_listener_asks_for_them(
    secured: Secured, client_auth: str, shows: str | None, is_served: bool
) -> None:
    """Everybody could read and write, or those who may could not."""
    issued = {
        None: None,
        "good": secured.client,
        "other": Authority("authority").issue("x"),
        "expired": secured.authority.issue("x", days=-1),
    }[shows]
    broker = secured.start(ssl_client_auth=client_auth)
    admin = AdminClient(secured.of_client(issued, **{"socket.timeout.ms": 4000, "log_level": 0}))
    if is_served:
        assert admin.list_topics(timeout=WAIT_SECONDS).brokers
    else:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)
        until(lambda: "TLS handshake of 127.0.0.1" in broker.output())


def test_a_certificate_for_no_host_is_refused_by_a_client_that_checks(secured: Secured) -> None:
    """A client would take any broker with a certificate for its own."""
    secured.issued = secured.authority.issue(hosts=["elsewhere.example"])
    secured.issued.write_pkcs12(secured.store, SECRET)
    secured.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        secured.shown()


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"ssl.keystore.password": "wrong"}, "the password is wrong"),
        ({"ssl.keystore.location": "/nowhere/broker.p12"}, "cannot be read: No such file or directory"),
        ({"ssl.truststore.location": "/nowhere/ca.pem"}, "ssl.truststore.location /nowhere/ca.pem: cannot be read"),
        ({"ssl.cipher.suites": "TLS_RUBBISH"}, "TLS_RUBBISH"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "Invalid rule"),
        ({"ssl.keystore.location": "", "ssl.keystore.password": ""}, "none is set"),
    ],
)
def test_a_broker_does_not_start_with_stores_that_it_cannot_use(
    secured: Secured, others: dict[str, str], reason: str
) -> None:
    """It would start without TLS, or serve nobody and not say why."""
    broker = secured.make({**secured.settings(), **others})
    with pytest.raises(BrokerError):
        broker.start()
    assert "listener SSL: " in broker.output()
    assert reason in broker.output()
    assert SECRET not in broker.output()


def test_a_renewed_certificate_is_shown_without_a_restart(secured: Secured) -> None:
    """The broker would go on with a certificate that has run out, and clients with open connections be cut off."""
    secured.start()
    with secured.wrapped() as wrapped:
        before = wrapped.getpeercert(binary_form=True)
        secured.authority.issue(days=60).write_pkcs12(secured.store, SECRET)
        until(lambda: secured.shown() != before)
        wrapped.sendall(API_VERSIONS)
        assert len(wrapped.recv(100)) > 8


@pytest.mark.parametrize("kind", ["broken", "other name"])
def test_a_store_that_must_not_be_taken_leaves_the_old_one(secured: Secured, kind: str) -> None:
    """A slip of the hand would cut off all clients, or let them find another broker than they knew."""
    broker = secured.start()
    before = secured.shown()
    if kind == "broken":
        secured.store.write_bytes(b"rubbish")
    else:
        secured.authority.issue("somebody else").write_pkcs12(secured.store, SECRET)
    until(lambda: "listener SSL keeps the key and trust stores that it has" in broker.output())
    assert secured.shown() == before


def alter(secured: Secured, values: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{secured.plain_port}"})
    edits = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=edits)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_SECONDS)


def test_a_listeners_store_is_changed_at_run_time(secured: Secured) -> None:
    """A store under another name would need a restart; its password would be shown to all who describe the broker."""
    broker = secured.start()
    before = secured.shown()
    path = secured.authority.issue(days=90).write_pkcs12(secured.folder / "next.p12", "next-secret")
    prefix = "listener.name.ssl.ssl.keystore."
    with pytest.raises(KafkaException, match="the password is wrong"):
        alter(secured, {f"{prefix}location": str(path), f"{prefix}password": "wrong"})
    assert secured.shown() == before
    alter(secured, {f"{prefix}location": str(path), f"{prefix}password": "next-secret"})
    until(lambda: secured.shown() != before)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{secured.plain_port}"})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    entries = described.result(WAIT_SECONDS)
    assert entries[f"{prefix}location"].value == str(path)
    assert entries[f"{prefix}password"].value is None
    assert entries[f"{prefix}password"].is_sensitive
    after = secured.shown()
    broker.restart()
    assert secured.shown() == after


@pytest.mark.parametrize("name", ["localhost", "kafka.example.org", None])
def test_a_client_that_names_another_host_gets_the_listeners_certificate(secured: Secured, name: str | None) -> None:
    """Brokers behind a proxy or another name would not be reached: the client judges the certificate, as with Kafka."""
    secured.start()
    context = secured.context()
    context.check_hostname = False
    with (
        socket.create_connection(("127.0.0.1", secured.port), WAIT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as wrapped,
    ):
        wrapped.sendall(API_VERSIONS)
        assert wrapped.recv(8)[4:] == API_VERSIONS[8:12]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no other client here asks for new keys")
@pytest.mark.parametrize("asks", [b"k", b"K"], ids=["of its own", "of both sides"])
def test_a_client_changes_its_keys_amid_a_connection(secured: Secured, asks: bytes) -> None:
    """A connection that lives long would be at its end with the first KeyUpdate of TLS 1.3."""
    secured.start()
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{secured.port}", "-CAfile", str(secured.trust), "-tls1_3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        said = b""

        def read_until(wanted: bytes, count: int = 1) -> None:
            nonlocal said
            while said.count(wanted) < count:
                more = os.read(client.stdout.fileno(), 65536)  # type: ignore[union-attr]
                assert more, said
                said += more

        try:
            read_until(b"Verify return code: 0")
            for number in range(1, 4):
                client.stdin.write(asks + b"\n")
                read_until(b"KEYUPDATE", number)
                client.stdin.write(API_VERSIONS)
                read_until(API_VERSIONS[8:12], number)
        finally:
            client.kill()


def test_speakers_of_the_wrong_protocol_are_named_once_for_each_address(secured: Secured) -> None:
    """The owner of a client with the wrong port would look for the fault everywhere else, each of several."""
    broker = secured.start()
    for host in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.2"):
        for port, said in ((secured.port, API_VERSIONS), (secured.plain_port, None)):
            with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS, (host, 0)) as plain:
                if said is not None:
                    plain.sendall(said)
                    assert plain.recv(100) == b""
                else:
                    with pytest.raises((ssl.SSLError, OSError)):
                        secured.context().wrap_socket(plain, server_hostname="localhost")
    for number in (1, 2, 3):
        lines = [line for line in broker.output().splitlines() if f" 127.0.0.{number}:" in line]
        assert len([line for line in lines if "the client does not speak TLS" in line]) == 1
        assert len([line for line in lines if "this looks like a TLS handshake, but the listener" in line]) == 1


def test_clients_log_in_over_tls(secured: Secured) -> None:
    """Passwords would have to travel in clear, or could not be used at all."""
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice='alice-secret';"
    broker = secured.start(
        listeners=f"SASL_SSL://127.0.0.1:{secured.port},PLAINTEXT://127.0.0.1:{secured.plain_port}",
        **{"listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN"},
        **{"listener.name.sasl_ssl.plain.sasl.jaas.config": jaas.replace("'", '"')},
    )
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    round_trip(secured.of_client(**login, **{"sasl.password": "alice-secret"}))
    admin = AdminClient(secured.of_client(**login, **{"sasl.password": "wrong", "log_level": 0}))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    with secured.wrapped() as wrapped:
        wrapped.sendall(b"\0\0\0\x11\0\x03\0\0\0\0\0\x07\0\x03abc\0\0\0\0")
        assert wrapped.recv(100) == b""
    assert "alice-secret" not in broker.output()


def test_certificates_and_handshakes_are_told_of(secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    """A certificate would run out, and clients would be turned away, without a word to the broker's owner."""
    secured.issued = secured.authority.issue(days=5)
    secured.issued.write_pkcs12(secured.store, SECRET)
    broker = secured.start()
    with secured.wrapped() as wrapped:
        wrapped.sendall(API_VERSIONS)
        assert wrapped.recv(4)
    with socket.create_connection(("127.0.0.1", secured.port), WAIT_SECONDS) as plain:
        plain.sendall(API_VERSIONS)
        assert plain.recv(100) == b""
    values = scrape(broker.metrics_url)
    assert values['kbroker_tls_handshakes_total{listener="SSL"}'] == 1
    assert values['kbroker_tls_handshakes_failed_total{kind="plaintext",listener="SSL"}'] == 1
    left = values['kbroker_tls_certificate_left_seconds{listener="SSL"}']
    assert 4 * 86_400 < left < 5 * 86_400
    assert "listener SSL: TLSv1.2 and TLSv1.3 as CN=localhost, its certificate is valid until" in broker.output()
    until(lambda: "a certificate of listener SSL runs out on" in broker.output())
    # Whole at once: the broker may look at any moment.
    (secured.folder / "rubbish").write_bytes(b"rubbish")
    (secured.folder / "rubbish").rename(secured.store)
    failed = 'kbroker_tls_store_changes_total{listener="SSL",outcome="failed"}'
    until(lambda: scrape(broker.metrics_url)[failed] == 1)

    address = f"127.0.0.1:{secured.port}"
    assert run(["certificates", address, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["certificates"]
    assert (shown["where"], shown["subject"], shown["issuer"]) == (address, "CN=localhost", "CN=authority")
    assert shown["hosts"] == "127.0.0.1, localhost"
    assert shown["days_left"] == 5.0
    assert run(["certificates", address, "--within", "7"]) == 1
    assert "CN=localhost" in capsys.readouterr().out
    secured.issued.write_pkcs12(secured.store, SECRET)
    properties = secured.folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in secured.settings().items()))
    assert run(["certificates", "--properties", str(properties), "--json"]) == 0
    assert [row["subject"] for row in json.loads(capsys.readouterr().out)["certificates"]] == [
        "CN=localhost",
        "CN=authority",
    ]
    assert run(["certificates", f"127.0.0.1:{secured.plain_port}"]) == 1
    assert run(["certificates"]) == 2
