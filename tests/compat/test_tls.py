"""Java's clients over TLS, with stores that Java's keytool has made, and names of certificates as Java writes them."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kbroker.security.tls.distinguished_name import java_name
from kbroker.security.tls.principal_mapping import PrincipalMapping
from tests.compat.tooling import HERE, compiled, java_command, run_java
from tests.security.tls.authority import Authority
from tests.security.tls.secured import SECRET, Secured
from tests.tools import require_tool

TOOLS = "org.apache.kafka.tools"
KINDS = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.STREET_ADDRESS,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
)
TEXTS = ("a", "Duke", " b ", "x,y", "a=b", "c+d", '"', "\\", "#1", "<>;", "Žofie", "日本", "  ", "é x", "a\r")
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?)$/$2-$1/L,RULE:^.*CN=([^,+]*).*$/$1/U,DEFAULT",
    r"RULE:^(.*)CN=(\w+)(.*)$/$2@$10\/x/",
    "RULE:^O=(.*)$/$1$7/",
)


def random_subject(drawn: random.Random) -> x509.Name:
    def attribute(kind: x509.ObjectIdentifier) -> x509.NameAttribute[str]:
        return x509.NameAttribute(kind, "".join(drawn.choices(TEXTS, k=drawn.choice((1, 2)))), _ASN1Type.UTF8String)

    return x509.Name(
        [
            x509.RelativeDistinguishedName(map(attribute, drawn.sample(KINDS, drawn.choice((1, 1, 1, 2)))))
            for _ in range(drawn.randrange(1, 5))
        ]
    )


def test_names_and_principals_are_those_that_java_and_kafka_make() -> None:
    """The ACLs of a cluster of Kafka would be about other principals here."""
    drawn, authority = random.Random(7), Authority()
    key = authority.key
    cases = [(authority.issue(random_subject(drawn), key=key).chain[0], drawn.choice(RULES)) for _ in range(600)]

    def encode(data: bytes) -> str:
        return base64.b64encode(data).decode()

    lines = [f"{encode(each.public_bytes(Encoding.DER))} {encode(rules.encode())}" for each, rules in cases]
    command = java_command("Names", classes=compiled(HERE / "java" / "Names.java"))
    said = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=True, timeout=200)
    for (certificate, rules), line in zip(cases, said.stdout.splitlines(), strict=True):
        name, principal = (base64.b64decode(word).decode() for word in line.split(" "))
        made = java_name(certificate.subject.public_bytes())
        assert made == name
        assert (PrincipalMapping(rules).name_of(made) or "none") == principal


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with Secured(tmp_path) as made:
        yield made


def keytool(*words: str) -> None:
    require_tool("keytool")
    done = subprocess.run(["keytool", *words, "-noprompt"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_javas_clients_use_the_stores_of_javas_keytool(secured: Secured, kind: str) -> None:
    """Whoever comes from Kafka would have to make new stores, or new ACLs for the names in their certificates."""
    folder, password = secured.folder, ("-storepass", SECRET)
    # The broker's own directory is `broker`.
    for name, subject in (("server", "CN=localhost"), ("client", "CN=Duke, OU=ServiceUsers, O=Org, C=US")):
        key = ("-genkeypair", "-alias", name, "-keyalg", "RSA", "-keysize", "2048", "-dname", subject)
        san = ("-ext", "SAN=dns:localhost,ip:127.0.0.1", "-keypass", SECRET)
        keytool(*key, *san, "-keystore", f"{folder}/{name}.store", "-storetype", kind, *password)
        keytool(
            "-exportcert", "-alias", name, "-keystore", f"{folder}/{name}.store", "-file", f"{folder}/{name}", *password
        )
    for name in ("server", "client"):
        store = ("-keystore", f"{folder}/trust.store", "-storetype", kind, *password)
        keytool("-importcert", "-alias", name, "-file", f"{folder}/{name}", *store)
    stores = {
        f"ssl.{what}store.{key}": value
        for what, file in (("key", "{}.store"), ("trust", "trust.store"))
        for key, value in (("type", kind), ("location", f"{folder}/{file}"), ("password", SECRET))
    }
    broker = secured.start(
        **{key: value.format("server") for key, value in stores.items()},
        **{
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    config = folder / "client.properties"
    lines = {"security.protocol": "SSL", **{key: value.format("client") for key, value in stores.items()}}
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    where = ("--bootstrap-server", f"127.0.0.1:{secured.port}", "--command-config", str(config))
    refused = run_java(f"{TOOLS}.TopicCommand", *where, "--create", "--topic", "t")
    assert "TopicAuthorizationException" in refused.stdout + refused.stderr
    plain = ("--bootstrap-server", broker.bootstrap)
    rule = ("--add", "--allow-principal", "User:duke", "--operation", "All", "--topic", "t", "--group", "g")
    assert run_java(f"{TOOLS}.AclCommand", *plain, *rule).returncode == 0
    made = run_java(f"{TOOLS}.TopicCommand", *where, "--create", "--topic", "t")
    assert made.returncode == 0, made.stdout + made.stderr
    client = ("--bootstrap-server", f"127.0.0.1:{secured.port}", "--topic", "t")
    sent = run_java(f"{TOOLS}.ConsoleProducer", *client, "--command-config", str(config), stdin=b"first\nsecond\n")
    assert sent.returncode == 0, sent.stderr
    words = ("--command-config", str(config), "--from-beginning", "--max-messages", "2", "--group", "g")
    got = run_java(f"{TOOLS}.consumer.ConsoleConsumer", *client, *words)
    assert got.stdout.split() == ["first", "second"], got.stderr
