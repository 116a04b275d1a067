"""Settings of nodes with the controller role: what is accepted and refused, and in which words.

All rows were asked of Apache Kafka 4.3.1 (`KafkaConfig`); `OWN` has those that kbroker judges otherwise.  Also of
`kbroker.config.place_in_cluster`, `kbroker.config.quorum_rows`, `kbroker.cluster.kraft.settings`.
"""

from __future__ import annotations

import pytest

from kbroker.cluster.kraft.settings import QuorumSettings
from kbroker.config import BrokerConfig, ConfigError

NAMES = {"controller.listener.names": "CONTROLLER"}
OWN_VOTER = {"controller.quorum.voters": "1@127.0.0.1:9093"}
TWO_VOTERS = {"controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9095"}
FOUND = {"controller.quorum.bootstrap.servers": "h:9093"}
ALONE = {"process.roles": "controller", "node.id": "1", **NAMES, "listeners": "CONTROLLER://127.0.0.1:9093"}
BOTH = {
    "process.roles": "broker,controller",
    "node.id": "1",
    **NAMES,
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}
TWO_NAMES = {
    "controller.listener.names": "CONTROLLER,OTHER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}

UNNAMED = {key: each for key, each in {**ALONE, **OWN_VOTER}.items() if key not in NAMES}
UNNAMED["listener.security.protocol.map"] = "CONTROLLER:PLAINTEXT"
ACCEPTED: list[dict[str, str]] = [
    {**ALONE, **OWN_VOTER},
    {**ALONE, **TWO_VOTERS},
    {**ALONE, **FOUND},
    {**ALONE, **FOUND, "process.roles": "controller,controller"},
    {**ALONE, **FOUND, "advertised.listeners": "CONTROLLER://h:9093"},
    {**ALONE, **FOUND, "advertised.listeners": "PLAINTEXT://h:9093"},
    {**ALONE, **FOUND, "listeners": "CONTROLLER://0.0.0.0:9093"},
    {**ALONE, **FOUND, "inter.broker.listener.name": "PLAINTEXT"},
    {**ALONE, **FOUND, "controller.quorum.auto.join.enable": "true"},
    {**ALONE, **OWN_VOTER, "controller.quorum.auto.join.enable": "true"},
    {**BOTH, **TWO_VOTERS},
]

ONLY = "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
ONLY += "process.roles=controller"
APPEARING = "in the 'listeners' configuration when running the KRaft controller role"
NO_QUORUM = "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
NO_QUORUM += "controllers or controller.quorum.voters must contain a parseable set of controllers."
NOT_AMONG = "If process.roles contains the 'controller' role, the node id 1 must be included in the set of voters "
NOT_AMONG += "controller.quorum.voters=Set({})"

REFUSED: list[tuple[dict[str, str], str]] = [
    (ALONE, NO_QUORUM),
    ({**ALONE, "controller.quorum.voters": "2@127.0.0.1:9093"}, NOT_AMONG.format("2")),
    ({**BOTH, "controller.quorum.voters": "3@127.0.0.1:9093,2@127.0.0.1:9095"}, NOT_AMONG.format("2, 3")),
    ({**ALONE, **OWN_VOTER, "listeners": "CONTROLLER://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092"}, ONLY),
    ({**ALONE, **OWN_VOTER, "listeners": "PLAINTEXT://127.0.0.1:9092"}, ONLY),
    ({**ALONE, **OWN_VOTER, **TWO_NAMES}, f"must only contain values appearing {APPEARING}"),
    ({**BOTH, **TWO_VOTERS, **TWO_NAMES}, f"must only contain values appearing {APPEARING}"),
    ({**BOTH, **TWO_VOTERS, "listeners": "PLAINTEXT://:9092"}, f"at least one value appearing {APPEARING}"),
    (
        {**BOTH, **TWO_VOTERS, "listeners": "CONTROLLER://127.0.0.1:9092"},
        "There must be at least one broker advertised listener. Perhaps all listeners appear in "
        "controller.listener.names?",
    ),
    (
        {**BOTH, **TWO_VOTERS, "inter.broker.listener.name": "CONTROLLER"},
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
        "on currently configured listeners are PLAINTEXT",
    ),
    (
        {**ALONE, **FOUND, "inter.broker.listener.name": "CONTROLLER"},
        "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration value "
        "when process.roles=controller",
    ),
    (
        {**ALONE, **FOUND, "inter.broker.listener.name": "NOPE"},
        "Listener with name NOPE defined in inter.broker.listener.name not found in listener.security.protocol.map.",
    ),
    ({**ALONE, **FOUND, "node.id": "-1"}, "Invalid value -1 for configuration node.id: Value must be at least 0"),
    (
        {**BOTH, **FOUND, "process.roles": "broker", "listeners": "PLAINTEXT://:9092",
         "controller.quorum.auto.join.enable": "true"},
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    ),
    (UNNAMED, 'Missing required configuration "controller.listener.names" which has no default value.'),
]  # fmt: skip
OWN: list[tuple[dict[str, str], str]] = [
    ({**ALONE, **FOUND, "advertised.listeners": "CONTROLLER://0.0.0.0:9093"}, "name one host"),
    ({**ALONE, **FOUND, "kbroker.workers": "2"}, "workers are a cluster of their own"),
    ({**BOTH, **TWO_VOTERS, "kbroker.workers": "2"}, "workers are a cluster of their own"),
    ({**ALONE, **FOUND, "zookeeper.connect": "z:2181"}, "has its metadata from a KRaft quorum"),
]


@pytest.mark.parametrize("settings", ACCEPTED)
def test_settings_of_voters_that_kafka_accepts_are_accepted(settings: dict[str, str]) -> None:
    """A controller's server.properties would have to be changed for kbroker."""
    config = BrokerConfig.from_mapping(settings)
    assert config.is_voter
    assert [each.name for each in config.controller_listeners] == ["CONTROLLER"]
    assert config.is_controller_alone == ("broker" not in settings["process.roles"])
    assert [each.name for each in config.listeners] == ["CONTROLLER" if config.is_controller_alone else "PLAINTEXT"]
    assert {each.name for each in config.advertised_listeners} <= {"CONTROLLER"}


@pytest.mark.parametrize(("settings", "words"), REFUSED + OWN)
def test_settings_of_voters_that_kafka_refuses_are_refused(settings: dict[str, str], words: str) -> None:
    """A node would be a cluster of its own, or a voter that other voters do not find."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_mapping(settings)
    assert words in str(caught.value)


@pytest.mark.parametrize("settings", [{}, {"process.roles": "broker,controller"}])
def test_a_node_that_names_no_controller_is_no_voter(settings: dict[str, str]) -> None:
    """A single node would wait for others, or open a port for them."""
    config = BrokerConfig.from_mapping(settings)
    assert not config.is_voter and not config.is_quorum_of_one
    assert [each.name for each in config.listeners] == ["PLAINTEXT"]
    assert config.controller_listeners == []


OWN_ADDRESS = {"controller.quorum.bootstrap.servers": "localhost:9093"}
EVERYWHERE = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
SHOWN = {**EVERYWHERE, "advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093"}


@pytest.mark.parametrize(
    ("settings", "is_alone"),
    [
        ({**BOTH, **OWN_VOTER}, True),
        ({**BOTH, **OWN_ADDRESS}, True),
        ({**BOTH, **OWN_ADDRESS, **EVERYWHERE}, True),
        ({**BOTH, **FOUND, **SHOWN}, True),
        ({**BOTH, **FOUND}, False),
        ({**BOTH, **FOUND, **EVERYWHERE}, False),
        ({**BOTH, "controller.quorum.bootstrap.servers": "localhost:9094"}, False),
        ({**BOTH, "controller.quorum.bootstrap.servers": "localhost:9093,localhost:9094"}, False),
        ({**BOTH, **TWO_VOTERS}, False),
        ({**ALONE, **OWN_VOTER}, False),
    ],
)
def test_a_node_that_names_itself_alone_is_a_quorum_of_one(settings: dict[str, str], is_alone: bool) -> None:
    """A node would wait for others that there are not, or begin a cluster beside the one that it is to join."""
    config = BrokerConfig.from_mapping(settings)
    assert config.is_voter and config.is_quorum_of_one == is_alone
    assert [each.name for each in config.controller_listeners] == ["CONTROLLER"]


def test_a_voters_times_are_those_of_the_settings() -> None:
    """Elections would not follow what an operator has set, or Kafka's defaults."""
    found = QuorumSettings.of(BrokerConfig.from_mapping({**ALONE, **OWN_VOTER}))
    assert (found.election_seconds, found.resigned_seconds, found.fetch_seconds) == (1.0, 1.0, 2.0)
    assert not found.joins
    changed = QuorumSettings.of(
        BrokerConfig.from_mapping(
            {
                **ALONE,
                **OWN_VOTER,
                "controller.quorum.election.timeout.ms": "300",
                "controller.quorum.election.backoff.max.ms": "400",
                "controller.quorum.auto.join.enable": "true",
            }
        )
    )
    assert (changed.election_seconds, changed.resigned_seconds) == (0.3, 0.4)
    assert changed.joins
