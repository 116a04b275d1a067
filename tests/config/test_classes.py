"""Kafka's own Java classes in settings: names for what kbroker has, and any other class is refused.

Of `kbroker.config.classes`, and docs/security.md, which has the table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError, broker_config_rows
from kbroker.config.classes import (
    CLIENT_HANDLER,
    JWT_RETRIEVER,
    JWT_VALIDATOR,
    KNOWN_CLASSES,
    LOGIN,
    LOGIN_HANDLER,
    OF_MECHANISMS,
    SECURITY,
    SERVER_HANDLER,
    UNSECURED_LOGIN,
    KnownClass,
    assignor_name,
    known_names,
)
from kbroker.coordinator.consumer.settings import ConsumerSettings
from kbroker.metadata.broker_settings import STORED
from kbroker.security.client.between_brokers import between_brokers
from kbroker.security.client.client_security import ClientSecurityError
from kbroker.security.sasl.settings import SaslSettingsError, sasl_settings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
HEAD = "| Setting | Kafka's class | what kbroker has in its place |"
ROWS = {row.name: row for row in broker_config_rows()}
TAKEN = [each for each in KNOWN_CLASSES if not each.refused]
PREFIX = "listener.name.clients"
BEARER = f"{SECURITY}.oauthbearer"
MODULES = {
    "PLAIN": f'{SECURITY}.plain.PlainLoginModule required username="a" password="b" user_a="b";',
    "SCRAM-SHA-256": f"{SECURITY}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{SECURITY}.scram.ScramLoginModule required;",
    "OAUTHBEARER": f"{BEARER}.OAuthBearerLoginModule required;",
}
CLASSES_OF_PLUGINS = ["create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class"]


def short(each: KnownClass) -> str:
    """Names a test."""
    return f"{each.setting} {each.name.rpartition('.')[2]}"


def listening(mechanism: str, **further: str) -> dict[str, str]:
    """The settings of a listener whose clients authenticate by a mechanism."""
    return {
        "listeners": "CLIENTS://127.0.0.1:9092",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
        f"{PREFIX}.{mechanism.lower()}.sasl.jaas.config": MODULES[mechanism],
        **further,
    }


@pytest.mark.parametrize("known", TAKEN, ids=short)
def test_a_class_of_kafkas_own_stands_for_what_is_built_in(known: KnownClass) -> None:
    """A server.properties that says what Kafka does by itself would end the start."""
    config = BrokerConfig.from_mapping({known.setting: known.name})
    assert not [each for each in config.warnings if known.setting in each]
    value = config.get(known.setting)
    assert value == ([known.name] if isinstance(value, list) else known.name)


@pytest.mark.parametrize("known", [each for each in TAKEN if each.mechanisms], ids=short)
def test_a_mechanism_of_a_listener_has_its_own_classes_and_no_others(known: KnownClass) -> None:
    """A public set-up would not start, or one whose mechanism checks nothing would."""
    for mechanism in MODULES:
        settings = listening(mechanism, **{f"{PREFIX}.{mechanism.lower()}.{known.setting}": known.name})
        config = BrokerConfig.from_mapping(settings)
        if mechanism in known.mechanisms:
            assert sasl_settings(config, "CLIENTS").mechanisms[0].name == mechanism
        else:
            with pytest.raises(SaslSettingsError, match=f"names a class that is none of {mechanism}'s"):
                sasl_settings(config, "CLIENTS")
        for unprefixed in (known.setting, f"{PREFIX}.{known.setting}"):
            sasl_settings(BrokerConfig.from_mapping(listening(mechanism, **{unprefixed: known.name})), "CLIENTS")


@pytest.mark.parametrize("known", [each for each in KNOWN_CLASSES if each.refused], ids=short)
def test_a_class_of_kafkas_own_that_is_not_there_is_refused_with_the_reason(known: KnownClass) -> None:
    """Tokens without a signature would be asked for, and states would not be kept, without a word."""
    with pytest.raises(ConfigError, match=f"{re.escape(known.means)}.*refuses to start"):
        BrokerConfig.from_mapping({known.setting: known.name})


@pytest.mark.parametrize("setting", [*dict.fromkeys(each.setting for each in KNOWN_CLASSES), *CLASSES_OF_PLUGINS])
def test_any_other_class_ends_the_start(setting: str) -> None:
    """What the owner's class decides would be decided otherwise."""
    prefixes = ("", f"{PREFIX}.", f"{PREFIX}.plain.") if setting in OF_MECHANISMS else ("",)
    for prefix in prefixes:
        with pytest.raises(ConfigError, match=f"{re.escape(setting)}.*(runs no|names (a )?Java class|must be one of)"):
            BrokerConfig.from_mapping({f"{prefix}{setting}": "com.example.Mine"})


def test_reporters_are_known_one_by_one() -> None:
    """One of somebody's own would be taken because it stands beside Kafka's."""
    reporter = known_names("metric.reporters")[0]
    with pytest.raises(ConfigError, match="reporters asks for what kbroker cannot do"):
        BrokerConfig.from_mapping({"metric.reporters": f"{reporter},com.example.Mine"})


def test_the_broker_does_not_log_in_by_tokens_without_a_signature() -> None:
    """Other brokers would be shown tokens that anybody could have made, where signed ones were asked for."""
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "file:///token"}
    for key in (LOGIN_HANDLER, f"{PREFIX}.oauthbearer.{LOGIN_HANDLER}"):
        config = BrokerConfig.from_mapping(listening("OAUTHBEARER", **endpoint, **{key: UNSECURED_LOGIN}))
        with pytest.raises(ClientSecurityError, match="without a signature"):
            between_brokers(config, "CLIENTS")
    plain = BrokerConfig.from_mapping(listening("PLAIN", **{LOGIN_HANDLER: UNSECURED_LOGIN}))
    assert between_brokers(plain, "CLIENTS").mechanism == "PLAIN"


def test_assignors_may_be_named_by_their_classes() -> None:
    """A list that Kafka takes would be refused, or groups would have another default."""
    package = "org.apache.kafka.coordinator.group.assignor"
    config = BrokerConfig.from_mapping({"group.consumer.assignors": f"{package}.RangeAssignor,uniform"})
    assert ConsumerSettings.of(config).assignors == ("range", "uniform")
    assert config.get("group.consumer.assignors")[0] == f"{package}.RangeAssignor"
    assert assignor_name(f"{package}.SimpleAssignor") == "simple"
    with pytest.raises(ConfigError, match="duplicated"):
        BrokerConfig.from_mapping({"group.consumer.assignors": f"uniform,{package}.UniformAssignor"})


def test_each_setting_that_names_a_class_has_known_ones_or_none() -> None:
    """A setting of the kind would be judged by another rule than the rest."""
    named = {row.name for row in ROWS.values() if row.type.name == "CLASS" or ".class" in row.name}
    tiered = {name for name in named if name.startswith("remote.log.")}
    assert named - tiered - set(CLASSES_OF_PLUGINS) <= {each.setting for each in KNOWN_CLASSES}
    assert {each.setting for each in KNOWN_CLASSES} <= ROWS.keys()
    assert {SERVER_HANDLER, LOGIN_HANDLER, CLIENT_HANDLER, LOGIN, JWT_RETRIEVER, JWT_VALIDATOR} == set(OF_MECHANISMS)
    assert {"ssl.engine.factory.class", "principal.builder.class", "metric.reporters"} <= STORED


def test_the_document_has_the_table() -> None:
    """People would look for a class in the code."""
    rows = [
        f"| `{each.setting}` | `{each.name}` | {'**refused**: ' if each.refused else ''}{each.means} |"
        for each in KNOWN_CLASSES
    ]
    lines = DOCUMENT.splitlines()
    start = lines.index(HEAD) + 2
    assert lines[start : lines.index("", start)] == rows
