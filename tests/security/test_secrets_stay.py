"""No password, key or token that a broker is given leaves it: by a log, an answer, a page, a metric or a repr."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pprint
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.broker import Broker
from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.jaas import JaasError, parse_jaas
from kbroker.config.judgement import judge
from kbroker.console.site import ENDPOINTS
from kbroker.metadata.security_image import ScramKey
from kbroker.schemas import message
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.settings import sasl_settings
from kbroker.security.scram import ScramMechanism, salted_password
from tests.ports import free_port
from tests.scenarios.wire import build
from tests.security.bearer import Issuer
from tests.security.credential_scenario import CREATIONS
from tests.security.sasl_broker import PLAIN_MODULE, PREFIX, RawClient, sasl_broker

PASSWORDS = {
    "plain": "SECRET-of-alice",
    "admin": "SECRET-of-admin",
    "wrong": "SECRET-that-is-wrong",
    "scram": "SECRET-of-sam",
    "tokens": "SECRET-of-tokens",
}
JAAS = (
    f'{PLAIN_MODULE} required username="admin" password="{PASSWORDS["admin"]}" user_admin="{PASSWORDS["admin"]}" '
    f'user_alice="{PASSWORDS["plain"]}";'
)
JAAS_KEY = f"{PREFIX}.plain.sasl.jaas.config"


def settings_of(folder: Path, metrics_port: int, keys: Path) -> dict[str, str]:
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        JAAS_KEY: JAAS,
        f"{PREFIX}.oauthbearer.sasl.jaas.config": bearer,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "delegation.token.secret.key": PASSWORDS["tokens"],
        "connection.failed.authentication.delay.ms": "0",
        "metrics.listener": f"http://127.0.0.1:{metrics_port}",
    }


class Heard:
    """What the broker has let out, and what it must not."""

    def __init__(self) -> None:
        self.secrets = dict(PASSWORDS)
        self.texts: list[str] = []

    def hear(self, *things: object) -> None:
        self.texts += [thing if isinstance(thing, str) else repr(thing) for thing in things]

    def hide(self, name: str, secret: bytes) -> None:
        """A secret, and the form that it would have in a text."""
        self.secrets[name] = secret.decode() if secret.isascii() else base64.b64encode(secret).decode()
        self.secrets[f"{name} as bytes"] = repr(secret)[2:-1]

    def leaked(self) -> list[str]:
        everything = "\n".join(self.texts)
        return [name for name, secret in self.secrets.items() if secret in everything]


async def _clients_come(broker: Broker, heard: Heard, issuer: Issuer) -> None:
    client = await RawClient.connect(broker)
    assert (await client.log_in("admin", PASSWORDS["admin"])).error_code == 0
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, PASSWORDS["scram"].encode(), b"SALT-of-sam", 4096)
    row = {"name": "sam", "mechanism": 1, "iterations": 4096, "salt": b"SALT-of-sam", "salted_password": salted}
    values = {"deletions": [], "upsertions": [row, {**row, "name": "tom", "iterations": 1}]}
    heard.hear(await _ask(client, "AlterUserScramCredentials", 0, values))
    credential = broker.cache.image.security.scram[ScramKey("sam", 1)]
    for name, secret in (
        ("salted", salted),
        ("stored key", credential.stored_key),
        ("server key", credential.server_key),
    ):
        heard.hide(name, secret)
    made = await _ask(client, "CreateDelegationToken", 3, CREATIONS["own"])
    heard.hide("a token's HMAC", bytes(made.hmac))
    heard.hear(await _ask(client, "DescribeUserScramCredentials", 0, {"users": None}))
    for resource in ("", str(broker.config.node_id)):
        wanted = {"resource_type": 4, "resource_name": resource, "configuration_keys": None}
        values = {"resources": [wanted], "include_synonyms": True, "include_documentation": False}
        heard.hear(repr(await _ask(client, "DescribeConfigs", 4, values)))
    change = {"name": JAAS_KEY, "config_operation": 0, "value": JAAS}
    for key in (JAAS_KEY, "sasl.jaas.config", "delegation.token.secret.key"):
        rows = [{"resource_type": 4, "resource_name": "", "configs": [{**change, "name": key}]}]
        heard.hear(await _ask(client, "IncrementalAlterConfigs", 1, {"resources": rows, "validate_only": False}))
    for name, word in (("alice", PASSWORDS["wrong"]), (PASSWORDS["wrong"], "x"), ("alice", PASSWORDS["plain"] + "\0")):
        other = await RawClient.connect(broker)
        heard.hear(await other.log_in(name, word))
    for mechanism, token in (
        ("SCRAM-SHA-256", PASSWORDS["wrong"].encode()),
        ("OAUTHBEARER", PASSWORDS["wrong"].encode()),
        ("OAUTHBEARER", f"n,,\x01auth=Bearer {issuer.token({'sub': PASSWORDS['wrong']})}\x01\x01".encode()),
    ):
        other = await RawClient.connect(broker)
        await other.handshake(mechanism)
        heard.hear(await other.authenticate(token))
        if mechanism == "OAUTHBEARER":
            heard.hear(await other.authenticate(b"\x01"))
    other = await RawClient.connect(broker)
    heard.hear(await other.ask("SaslHandshake", 1, mechanism=PASSWORDS["wrong"]))
    old = await RawClient.connect(broker)
    await old.handshake("PLAIN", version=0)
    old.send_token(PASSWORDS["wrong"].encode())
    heard.hear(await old.token())
    heard.hear(client.session, *[each.session for each in broker.node.listeners.all[0].endpoint.connections])


async def _ask(client: RawClient, api: str, version: int, values: dict[str, Any]) -> Any:
    request = build(message(f"{api}Request"), values)
    names = [field.name for field in type(request).schema.fields]
    return await client.ask(api, version, **{name: getattr(request, name) for name in names})


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read(), "utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read(), "utf-8", "replace")


def test_no_secret_leaves_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads a log, a page or a metric could log in as anybody."""
    issuer, heard, port = Issuer(), Heard(), free_port()
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.jwks())
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with sasl_broker(tmp_path, settings_of(tmp_path, port, keys)) as broker:
            await _clients_come(broker, heard, issuer)
            paths = ["metrics", "readyz", "logs", *(f"console/api/{name}" for name in ENDPOINTS)]
            for path in paths:
                heard.hear(await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/{path}"))
            config = broker.settings.config
            heard.hear(judge(JAAS_KEY, JAAS))
            heard.hear(
                config, *config._settings.values(), broker.node.sasl, broker.node.sasl.__dict__, broker.node.security
            )
            heard.hear(sasl_settings(config, "SASL_PLAINTEXT"), parse_jaas(JAAS), Login("sam", PASSWORDS["scram"]))
            heard.hear(pprint.pformat(broker.cache.image.security), broker.cache.image)

    uvloop.run(main())
    heard.hear(caplog.text, json.dumps([record.getMessage() for record in caplog.records]))
    assert "authentication of a client" in caplog.text and "a bearer token is refused" in caplog.text
    assert heard.leaked() == []


@pytest.mark.parametrize("text", [JAAS[:-1], JAAS.replace("=", "", 1), JAAS.replace("required", PASSWORDS["admin"])])
def test_a_setting_that_is_wrong_is_not_shown(text: str) -> None:
    """A typing error would show the password in the log of the start."""
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert "SECRET" not in str(caught.value)


def test_settings_that_are_refused_do_not_show_secrets() -> None:
    """The same of a setting that contradicts another one."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_mapping({"delegation.token.secret.key": PASSWORDS["tokens"], "listeners": "X://:1"})
    assert "SECRET" not in str(caught.value) + repr(caught.value) + repr(caught.value.setting)
