"""Where settings come from, what is warned of and what stops the start.

Also of `kbroker.config.topic`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError, Listener, LogConfig, Source, log_config
from kbroker.config.judgement import find_row
from kbroker.errors import InvalidConfigError

STOCK = """
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
"""


def load(text: str = "", *overrides: str, tmp_path: Path | None = None, **environ: str) -> BrokerConfig:
    path = None
    if tmp_path is not None:
        path = tmp_path / "server.properties"
        path.write_text(text)
    return BrokerConfig.load(path, overrides, {"HOME": "/home/me", **environ})


def test_defaults_serve_a_single_node() -> None:
    """`kbroker start` without a file would not start."""
    config = load()
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)]
    assert config.advertised_listeners == []
    assert config.log_dirs == ["/home/me/.local/share/kbroker/data"]
    assert config.node_id == 1
    assert config.get("group.initial.rebalance.delay.ms") == 0
    assert config.warnings == []
    assert config.explicit == frozenset()
    assert log_config(config, {}) == LogConfig()


def test_precedence(tmp_path: Path) -> None:
    """A setting given on the command line would lose to a file."""
    text = "num.partitions=1\nnum.io.threads=1\nlog.roll.hours=1\nfetch.max.bytes=4000\n"
    config = load(
        text,
        "num.partitions=3",
        tmp_path=tmp_path,
        KBROKER_NUM_PARTITIONS="2",
        KBROKER_LOG_ROLL_HOURS="2",
        KBROKER_LOG_FORMAT="json",
    )
    assert config.get("num.partitions") == 3
    assert config.get("log.roll.hours") == 2
    assert config.get("fetch.max.bytes") == 4000
    assert config.get("kbroker.log.format") == "json"
    assert config.source_of("num.partitions") is Source.OVERRIDE
    assert config.source_of("log.roll.hours") is Source.ENVIRONMENT
    assert config.source_of("fetch.max.bytes") is Source.FILE
    assert config.source_of("num.io.threads") is Source.FILE
    assert config.source_of("broker.rack") is Source.DEFAULT
    assert config.origin_of("fetch.max.bytes").endswith("server.properties line 4")


def test_kafkas_own_example_file_works(tmp_path: Path) -> None:
    """The first file that everybody tries would not start a broker."""
    config = load(STOCK, tmp_path=tmp_path)
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert config.advertised_listeners == [Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092)]
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    assert config.node_id == 7
    assert any("num.io.threads" in warning and "has no effect: " in warning for warning in config.warnings)


def test_unknown_names_suggest_a_known_one(tmp_path: Path) -> None:
    """A typo would silently leave a default in force."""
    config = load("log.segment.byte=1\nhost.name=x\n", tmp_path=tmp_path, KBROKER_NUM_PARTITION="3", KBROKER_HOME="/h")
    assert len(config.warnings) == 4
    assert "did you mean log.segment.bytes?" in config.warnings[0] or "log.segment.bytes" in config.warnings[1]
    assert any("host.name" in warning and "Kafka removed it" in warning for warning in config.warnings)
    assert any("did you mean KBROKER_NUM_PARTITIONS?" in warning for warning in config.warnings)
    assert config.log_dirs == ["/h/data"]


def test_a_key_set_twice_is_a_warning(tmp_path: Path) -> None:
    """The user would look at the line that does not count."""
    config = load("num.partitions=1\nnum.partitions=2\n", tmp_path=tmp_path)
    assert config.get("num.partitions") == 2
    assert "lines 1 and 2" in config.warnings[0]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("log.segment.bytes=x", "Invalid value x for configuration log.segment.bytes: Not a number of type INT"),
        ("log.segment.bytes=1", "Value must be at least 1048576"),
        ("log.message.timestamp.type=never", "must be one of: CreateTime, LogAppendTime"),
        ("listeners=PLAINTEXT", "'PLAINTEXT' is not name://host:port"),
        ("listeners=FOO://:1", "listener FOO has no protocol in listener.security.protocol.map"),
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", "appears twice"),
        ("listeners=PLAINTEXT://:99999", "not between 0 and 65535"),
        ("listeners=", "must not be empty"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "name one host"),
        ("advertised.listeners=OTHER://h:1", "no protocol"),
        ("queued.max.request.bytes=1000", "at least socket.request.max.bytes"),
        ("offsets.topic.compression.codec=9", "between 0 and 4"),
        ("metrics.listener=9644", "none, http://host:port or https://host:port"),
        ("process.roles=control", "must be one of"),
        ("kbroker.log.level=loud", "debug, info, warning, error"),
        ("max.connections.per.ip.overrides=127.0.0.1", "a list of address:number"),
        ("listeners=PLAINTEXT://${HOST_IP}:9092", "Unable to parse PLAINTEXT://${HOST_IP}:9092 to a broker endpoint"),
        ("advertised.listeners=PLAINTEXT://${IP}:1", "Unable to parse PLAINTEXT://${IP}:1 to a broker endpoint"),
        ("inter.broker.listener.name=NOPE", "not found in listener.security.protocol.map"),
        ("inter.broker.listener.name=SSL", "The valid options based on currently configured listeners are PLAINTEXT"),
        ("log.dirs=/data,C:\\kafka", "is a path of Windows"),
        ("log.dir=D:/kafka", "is a path of Windows"),
        ("controller.quorum.voters=1@a:9093,2@b:9093", "controllers other than this node 1 (2)"),
        ("log.message.format.version=2.9", "is not a valid version"),
        ("kafka.metrics.reporters=kafka.metrics.Other", "it names Java classes"),
        ("novalue", "must be key=value"),
    ],
)
def test_bad_values_stop_the_start_and_say_what_is_allowed(override: str, told: str) -> None:
    """The broker would run by a setting that nobody meant, or the user would have to guess."""
    with pytest.raises(ConfigError) as caught:
        load("", override)
    assert told in str(caught.value)
    assert override.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize("address", ["none", "http://:9644", "http://[::1]:9644", "https://127.0.0.1:9644"])
def test_the_metrics_listener_may_be_under_tls(address: str) -> None:
    """Metrics and console could not be encrypted, though the documentation says how."""
    assert load("", f"metrics.listener={address}").get("metrics.listener") == address


@pytest.mark.parametrize(
    "override",
    [
        "sasl.login.class=com.example.Mine",
        "sasl.client.callback.handler.class=com.example.Mine",
    ],
)
def test_protection_that_is_not_there_is_refused(override: str) -> None:
    """A broker that its owner believes protected would serve everybody."""
    with pytest.raises(ConfigError, match="refuses to start unprotected") as caught:
        load("", override)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("authorizer.class.name=com.example.Mine", "kbroker runs no Java; its own authorizer is known by org.apache"),
        ("super.users=User:alice,bob;carol", "in format principalType:principalName but got carol"),
        ("allow.everyone.if.no.acl.found=maybe", "Expected value to be either true or false"),
    ],
)
def test_an_authorizer_that_is_not_there_or_makes_no_sense_is_refused(override: str, words: str) -> None:
    """Rules would be judged otherwise than the owner believes, or not at all."""
    with pytest.raises(ConfigError, match=words):
        load("", override)


def test_a_setting_of_a_listener_may_be_that_of_a_mechanism() -> None:
    """The broker would check the passwords of one mechanism by the users of another."""
    config = BrokerConfig.from_mapping(
        {
            "ssl.client.auth": "requested",
            "listener.name.inside.ssl.client.auth": "required",
            "listener.name.inside.ssl.keystore.location": "/inside",
        }
    )
    assert config.for_listener("INSIDE", "ssl.client.auth") == "required"
    assert config.for_listener("OUTSIDE", "ssl.client.auth") == "requested"
    assert config.for_mechanism("INSIDE", "PLAIN", "ssl.keystore.location") == "/inside"
    assert config.for_listener("OUTSIDE", "ssl.keystore.location") is None
    assert find_row("listener.name.inside.scram-sha-256.sasl.jaas.config")[1:] == ("inside", "scram-sha-256")
    assert find_row("listener.name.inside.scram-sha-256.no.such")[0] is None


def test_the_protocol_between_brokers_is_one_that_a_listener_has() -> None:
    """Brokers would speak over another listener, in clear where TLS was asked for."""
    with pytest.raises(ConfigError, match=r"security.inter.broker.protocol: no listener has"):
        load("", "security.inter.broker.protocol=SSL")
    load("", "listeners=SSL://:9093", "security.inter.broker.protocol=SSL")


def test_security_settings_at_their_defaults_are_accepted(tmp_path: Path) -> None:
    """A file that spells out Kafka's defaults would not start."""
    assert load("security.inter.broker.protocol=PLAINTEXT\nssl.client.auth=none\n", tmp_path=tmp_path).warnings == []


def test_listeners_on_ipv6_and_several_names() -> None:
    """A broker could not listen on IPv6, or on more than one address."""
    config = load(
        "", "listeners=IN://[::1]:9092,OUT://0.0.0.0:0", "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT"
    )
    assert config.listeners == [Listener("IN", "PLAINTEXT", "::1", 9092), Listener("OUT", "PLAINTEXT", "0.0.0.0", 0)]
    assert str(config.listeners[0]) == "IN://[::1]:9092"


def test_missing_and_unreadable_files_are_told(tmp_path: Path) -> None:
    """A wrong path would start a broker with defaults."""
    with pytest.raises(ConfigError, match="nowhere: cannot be read: No such file or directory"):
        BrokerConfig.load(tmp_path / "nowhere", (), {})
    (tmp_path / "broken").write_text("a=\\u00")
    with pytest.raises(ConfigError, match="broken: line 1"):
        BrokerConfig.load(tmp_path / "broken", (), {})


@pytest.mark.parametrize(
    ("settings", "field", "expected"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, "retention_ms", 5),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.hours": "1", "log.roll.ms": "9"}, "segment_ms", 9),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "10"}, "flush_ms", 10),
        ({"log.flush.scheduler.interval.ms": "10", "log.flush.interval.ms": "4"}, "flush_ms", 4),
        ({"message.max.bytes": "5"}, "max_message_bytes", 5),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup_policy", frozenset({"compact", "delete"})),
        ({"min.insync.replicas": "2"}, "min_insync_replicas", 2),
    ],
)
def test_broker_settings_are_the_topics_defaults(settings: dict[str, str], field: str, expected: object) -> None:
    """Topics would roll, expire or flush by other rules than the broker's."""
    broker = BrokerConfig.from_mapping(settings)
    assert getattr(log_config(broker, {}), field) == expected


def test_a_topics_own_settings_win() -> None:
    """A topic's setting would have no effect."""
    broker = BrokerConfig.from_mapping({"log.segment.bytes": 1 << 21, "log.preallocate": True})
    config = log_config(
        broker, {"segment.bytes": "1048576", "cleanup.policy": "compact", "internal.segment.bytes": "9"}
    )
    assert (config.segment_bytes, config.preallocate, config.roll_bytes) == (1 << 20, True, 9)
    assert config.compact
    assert not config.delete
    with pytest.raises(InvalidConfigError, match="Not a number of type INT"):
        log_config(broker, {"segment.bytes": "x"})


def test_node_id_falls_back_to_broker_id() -> None:
    """A file from the ZooKeeper days would start another node."""
    assert BrokerConfig.from_mapping({"broker.id": 4}).node_id == 4
    assert BrokerConfig.from_mapping({"broker.id": 4, "node.id": 4}).node_id == 4


def test_reading_settings_imports_nothing_heavy() -> None:
    """Every start would pay for libraries that it does not use."""
    heavy = ("rich", "confluent_kafka", "asyncio", "difflib", "click")
    code = f"import sys, kbroker.config; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"node.id": 1, "broker.id": 2}, "You must set `node.id` to the same value as `broker.id`."),
        ({"node.id": 1, "broker.id": -1}, "You must set `node.id` to the same value as `broker.id`."),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        ({"controller.quorum.voters": "1@c:9093,2@d:9093"}, "a cluster of its own"),
        ({"process.roles": "broker"}, "either controller.quorum.bootstrap.servers must contain"),
        (
            {"process.roles": "broker", "node.id": 1, "controller.quorum.voters": "1@c:9093"},
            "the node id 1 must not be included in the set of voters",
        ),
        (
            {"process.roles": "broker", "controller.quorum.bootstrap.servers": "c:9093"},
            "controller.listener.names must contain at least one value",
        ),
        (
            {
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "c:9093",
                "controller.listener.names": "CONTROLLER",
                "zookeeper.connect": "z:2181",
            },
            "has its metadata from a KRaft quorum",
        ),
        (
            {
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "c:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
            },
            "must not contain a value appearing in the 'listeners' configuration",
        ),
    ],
)
def test_settings_that_contradict_each_other_about_the_brokers_place_are_refused(
    settings: dict[str, object], told: str
) -> None:
    """Kafka refuses them; a broker of another cluster would be started, alone, and take what its clients send."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_mapping(settings)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.message.format.version", "2.8.1"),
        ("log.message.format.version", "1.0.2"),
        ("log.message.format.version", "0.10.2.1"),
        ("kafka.metrics.reporters", "kafka.metrics.KafkaCSVMetricsReporter"),
        ("controller.quorum.voters", "1@localhost:9093"),
    ],
)
def test_what_kafka_accepts_starts(name: str, value: str) -> None:
    """A file that a Kafka was started with would be refused for nothing."""
    assert name in BrokerConfig.from_mapping({name: value}).explicit


def test_a_reporter_that_is_switched_on_is_refused() -> None:
    """Somebody would wait for figures that nobody writes."""
    values = {
        "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter",
        "kafka.csv.metrics.reporter.enabled": "true",
    }
    with pytest.raises(ConfigError, match="it names Java classes"):
        BrokerConfig.from_mapping(values)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("advertised.listeners=PLAINTEXT://broker.example:9092", ""),
        ("port=9093\nhost.name=broker.example", "; port, host.name are ignored"),
        ("advertised.host.name=broker.example", "; advertised.host.name is ignored"),
    ],
)
def test_a_broker_on_loopback_alone_that_was_meant_for_others_says_so(text: str, ignored: str, tmp_path: Path) -> None:
    """Clients elsewhere would get no answer from a broker whose log shows nothing wrong."""
    told = (
        f"the broker listens on loopback alone, PLAINTEXT://127.0.0.1:9092, and no other machine reaches it{ignored}."
    )
    assert sum(told in warning for warning in load(text, tmp_path=tmp_path).warnings) == 1
    assert not any(
        "loopback alone," in each for each in load(text, "listeners=PLAINTEXT://:9092", tmp_path=tmp_path).warnings
    )


def test_what_was_left_unexpanded_is_told(tmp_path: Path) -> None:
    """A directory would be called `${DATA}`, and nobody look for the records there."""
    (warning,) = load("log.dirs=${DATA}/kafka\n", tmp_path=tmp_path).warnings
    assert "log.dirs" in warning and "which nothing replaces" in warning


@pytest.mark.parametrize("name", ["confluent.balancer.enable", "kafka.csv.metrics.dir", "dataDir"])
def test_a_name_that_is_no_misspelt_one_gets_no_other_to_try(name: str) -> None:
    """Following the advice would turn on something else."""
    (warning,) = BrokerConfig.from_mapping({name: "true"}).warnings
    assert "is not a known setting and is ignored" in warning and "did you mean" not in warning


@pytest.mark.parametrize("mapped", ["KAFKA_{}", "KAFKA_CFG_{}"])
def test_variables_of_kafkas_images_are_named_in_one_warning(mapped: str) -> None:
    """A container's settings would be ignored, and the broker be another one than was asked for, without a word."""
    names = {mapped.format("LOG_DIRS"): "/x", mapped.format("LISTENERS"): "PLAINTEXT://:9092,CONTROLLER://:9093"}
    names[mapped.format("LISTENER_SECURITY_PROTOCOL_MAP")] = "CONTROLLER:PLAINTEXT,SSL:SSL,EXTERNAL:PLAINTEXT"
    names["KAFKA_HEAP_OPTS"] = "-Xmx1g"
    others = {
        "KAFKA_HOME": "/opt/kafka",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_BROKER_SERVICE_PORT_CLIENTS": "9092",
    }
    (warning,) = load(**names, **others).warnings
    assert all(name in warning for name in names)
    assert not any(f"{name}," in warning or f"{name}:" in warning for name in others)
    assert load(**others).warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_AUTHORIZER_CLASS_NAME", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("KAFKA_CFG_SASL_ENABLED_MECHANISMS", "PLAIN"),
        ("KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL", "PLAIN"),
        ("KAFKA_SSL_KEYSTORE_FILENAME", "broker.jks"),
        ("KAFKA_SSL_CLIENT_AUTH", "required"),
        ("KAFKA_LISTENERS", "SSL://:9093"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "CLIENT:SASL_PLAINTEXT"),
        ("KAFKA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION", "/k"),
        ("KAFKA_SECURITY_INTER_BROKER_PROTOCOL", "SASL_SSL"),
        ("KAFKA_SUPER_USERS", "User:admin"),
        ("KAFKA_OPTS", "-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf"),
        ("KAFKA_INTER_BROKER_PASSWORD", "secret"),
    ],
)
def test_variables_of_kafkas_images_that_ask_for_protection_stop_the_start(name: str, value: str) -> None:
    """A container that was set up with an authorizer would serve everybody."""
    with pytest.raises(ConfigError, match=f"environment {name}.*refuses to start unprotected") as caught:
        load(**{name: value})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_SSL_CLIENT_AUTH", "none"),
        ("KAFKA_AUTHORIZER_CLASS_NAME", ""),
        ("KAFKA_SECURITY_INTER_BROKER_PROTOCOL", "PLAINTEXT"),
        ("KAFKA_LISTENERS", "CLIENT://:9092"),
    ],
)
def test_variables_that_ask_for_no_protection_start(name: str, value: str) -> None:
    """A container without protection would not come up for a setting that says so."""
    assert len(load(**{name: value}).warnings) == 1


def test_a_setting_of_a_listener_is_its_own_or_the_brokers() -> None:
    """Each user of a listener's settings would look for the prefix in its own way."""
    config = BrokerConfig.from_mapping(
        {"listener.name.internal.max.connection.creation.rate": "7", "max.connection.creation.rate": "90"}
    )
    rate = "max.connection.creation.rate"
    assert [config.for_listener(name, rate) for name in ("INTERNAL", "internal", "PLAINTEXT")] == [7, 7, 90]
    assert [config.own_of_listener(name, rate) for name in ("INTERNAL", "PLAINTEXT")] == [7, None]
    with pytest.raises(KeyError):
        config.for_listener("INTERNAL", "max.connection.creation.rat")


def test_settings_of_single_listeners_and_providers_may_be_variables() -> None:
    """A container, which has nothing but variables, could have neither a login module nor secrets in files."""
    config = load(
        KBROKER_LISTENERS="SASL_PLAINTEXT://127.0.0.1:9092",
        KBROKER_CONFIG_PROVIDERS="env",
        KBROKER_CONFIG_PROVIDERS_ENV_CLASS="org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        KBROKER_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG="module required user_a=${env:SECRET};",
        KBROKER_LISTENER_NAME_SASL__PLAINTEXT_MAX_CONNECTIONS="7",
        KBROKER_LISTENER_NAME_SASL__PLAINTEXT_RUBBISH="x",
        SECRET="pw",
    )
    assert config.own_of_listener("SASL_PLAINTEXT", "plain.sasl.jaas.config") == "module required user_a=pw;"
    assert config.own_of_listener("SASL_PLAINTEXT", "max.connections") == 7
    assert [each for each in config.warnings if "environment" in each] == [
        "environment KBROKER_LISTENER_NAME_SASL__PLAINTEXT_RUBBISH is not a known setting and is ignored"
    ]
