"""What the container makes of an environment that was written for one of Kafka's images.

Also of `kbroker.config.images.settings`, `kbroker.config.images.names`, `kbroker.config.images.listeners`,
`kbroker.config.images.meaningless`, `kbroker.config.images.directories`, `kbroker.config.images.stores`,
`kbroker.config.images.logins`, `kbroker.config.images.first_start`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.images.directories import data_directory
from kbroker.config.images.first_start import PlannedTopic, cluster_id, planned_topics, with_commands
from kbroker.config.images.names import Image, ImageError, image_of, setting_of
from kbroker.config.images.settings import ImageSettings, image_settings

OBEY = {"KBROKER_KAFKA_VARIABLES": "obey"}
ZOOKEEPER = {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"}
SASL = {
    "KAFKA_CFG_LISTENERS": "CLIENT://:9092,INTERNAL://:9093",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
    "KAFKA_CLIENT_USERS": "alice,bob",
    "KAFKA_CLIENT_PASSWORDS": "of-alice,of-bob",
}


def taken(environ: Mapping[str, str], root: Path | None = None) -> ImageSettings:
    """What an environment says in a container that has nothing mounted."""
    return image_settings(environ, root=root or Path("/nowhere"), mounts=(), host_name="box")


def settings(environ: Mapping[str, str], root: Path | None = None) -> dict[str, str]:
    """The settings alone."""
    return {key: given.text for key, given in taken(environ, root).settings.items()}


def load(**environ: str) -> BrokerConfig:
    """The broker's settings by an environment."""
    return BrokerConfig.load(None, (), {**OBEY, "HOSTNAME": "box", **environ})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_LOG_RETENTION_HOURS", "log.retention.hours"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG", "listener.name.sasl_ssl.plain.sasl.jaas.config"),
        ("KAFKA_LISTENER_NAME_IN___SIDE_SSL_CLIENT_AUTH", "listener.name.in-side.ssl.client.auth"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_CFG_LISTENER_NAME_SASL_SSL_SSL_CLIENT_AUTH", "listener.name.sasl_ssl.ssl.client.auth"),
        ("KAFKA_LOGS_DIRS", "log.dirs"),
    ],
)
def test_a_variable_is_the_setting_that_its_image_makes_of_it(name: str, key: str) -> None:
    """A setting of the compose file would be another one, or none."""
    assert setting_of(name) == key


@pytest.mark.parametrize(
    ("environ", "image"),
    [
        ({"KAFKA_NODE_ID": "1"}, Image.KAFKA),
        ({"KAFKA_BROKER_ID": "1", "ALLOW_PLAINTEXT_LISTENER": "yes"}, Image.BITNAMI),
        ({"KAFKA_CFG_NODE_ID": "1"}, Image.BITNAMI),
        ({"KAFKA_ADVERTISED_HOST_NAME": "localhost"}, Image.WURSTMEISTER),
        ({"KAFKA_SERVICE_HOST": "10.0.0.1", "KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_HOME": "/opt"}, Image.NONE),
    ],
)
def test_the_image_is_known_by_its_variables(environ: Mapping[str, str], image: Image) -> None:
    """Defaults would be those of an image that nobody had."""
    assert image_of(environ) is image


LISTENERS = [
    # (the environment, listeners, advertised.listeners)
    ({}, "PLAINTEXT://:9092", None),
    ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:29092"}, "PLAINTEXT://:29092", "PLAINTEXT://kafka:29092"),
    (
        {"KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:29092"},
        "PLAINTEXT://:9092",
        "PLAINTEXT://localhost:29092",
    ),
    ({"KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://:9092"}, "PLAINTEXT://:9092", None),
    ({"KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://:9092", **ZOOKEEPER}, "PLAINTEXT://:9092", "PLAINTEXT://box:9092"),
    (ZOOKEEPER, "PLAINTEXT://:9092", "PLAINTEXT://box:9092"),
    ({"KAFKA_ADVERTISED_HOST_NAME": "10.0.0.7"}, "PLAINTEXT://:9092", "PLAINTEXT://10.0.0.7:9092"),
    (
        {"KAFKA_ADVERTISED_HOST_NAME": "here", "KAFKA_ADVERTISED_PORT": "32768", "KAFKA_PORT": "9095"},
        "PLAINTEXT://:9095",
        "PLAINTEXT://here:32768",
    ),
    (
        {"KAFKA_ADVERTISED_HOST_NAME": "here", "KAFKA_PORT": "tcp://10.0.0.1:9092"},
        "PLAINTEXT://:9092",
        "PLAINTEXT://here:9092",
    ),
    (
        {
            "KAFKA_ADVERTISED_PROTOCOL_NAME": "OUTSIDE",
            "KAFKA_ADVERTISED_HOST_NAME": "here",
            "KAFKA_ADVERTISED_PORT": "9094",
            "KAFKA_PROTOCOL_NAME": "INSIDE",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            **ZOOKEEPER,
        },
        "OUTSIDE://:9094,INSIDE://:9092",
        "OUTSIDE://here:9094,INSIDE://box:9092",
    ),
    (
        {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1", "KAFKA_ADVERTISED_HOST_NAME": "b"},
        "PLAINTEXT://:1",
        "PLAINTEXT://a:1",
    ),
]


@pytest.mark.parametrize(("environ", "listeners", "advertised"), LISTENERS)
def test_listeners_are_completed_as_the_images_do(
    environ: Mapping[str, str], listeners: str, advertised: str | None
) -> None:
    """Clients would find nobody at the port, or be sent to an address that is not theirs."""
    found = settings(environ)
    assert (found["listeners"], found.get("advertised.listeners")) == (listeners, advertised)
    config = load(**environ)
    assert ",".join(map(str, config.listeners)) == listeners


@pytest.mark.parametrize(
    ("image", "mounts", "directory"),
    [
        (Image.KAFKA, [], "/var/lib/kafka/data"),
        (Image.KAFKA, ["/var/lib/kafka"], "/var/lib/kafka/data"),
        (Image.KAFKA, ["/", "/var", "/tmp"], "/var/lib/kafka/data"),
        (Image.KAFKA, ["/kafka"], "/kafka/kafka-logs-box"),
        (Image.KAFKA, ["/tmp/kraft-combined-logs"], "/tmp/kraft-combined-logs"),
        (Image.KAFKA, ["/kafka", "/var/lib/kafka-logs"], "/var/lib/kafka/data"),
        (Image.BITNAMI, ["/bitnami"], "/bitnami/kafka/data"),
        (Image.BITNAMI, ["/bitnami/kafka/data"], "/bitnami/kafka/data"),
        (Image.WURSTMEISTER, [], "/kafka/kafka-logs-box"),
        (Image.NONE, ["/var/lib/kafka/data"], "/var/lib/kafka/data"),
        (Image.NONE, ["/var/lib/kbroker"], None),
        (Image.KAFKA, ["/var/lib/kbroker"], None),
        (Image.KAFKA, ["/var/lib/kbroker", "/var/lib/kafka/data"], "/var/lib/kafka/data"),
        (Image.KAFKA, ["/var/lib/kbroker", "/kafka"], "/kafka/kafka-logs-box"),
        (Image.BITNAMI, ["/var/lib/kbroker"], None),
    ],
)
def test_data_go_to_the_volume(image: Image, mounts: list[str], directory: str | None) -> None:
    """They would be gone with the container, beside a volume that stays empty."""
    home = PurePosixPath("/var/lib/kbroker")
    found = data_directory(image, "box", [PurePosixPath(mount) for mount in mounts], home)
    assert found == (None if directory is None else PurePosixPath(directory))


def test_variables_that_mean_nothing_are_named_in_one_line_with_the_reason() -> None:
    """Their owner would believe that they do something."""
    environ = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_JMX_PORT": "9101",
        "JMX_PORT": "9101",
        "KAFKA_LOG4J_LOGGERS": "kafka=WARN",
        "KAFKA_CONFLUENT_METRICS_REPORTER_SECURITY_PROTOCOL": "SASL_SSL",
        "CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
        "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
        "BITNAMI_DEBUG": "true",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "KAFKA_NODE_ID": "1",
    }
    found = taken(environ)
    (line,) = (each for each in found.warnings if each.startswith("variables that mean nothing here"))
    named = set(environ) - {"KAFKA_NODE_ID", "KAFKA_METRIC_REPORTERS", "KAFKA_LOG4J_ROOT_LOGLEVEL"}
    assert {name for name in environ if name in line} >= named and "KAFKA_NODE_ID" not in line
    assert "there is no Java machine" in line and "docs/metrics.md" in line
    assert any("KAFKA_METRIC_REPORTERS" in each for each in found.warnings)
    assert found.settings["kbroker.log.level"].text == "warning"
    assert "metric.reporters" not in found.settings


def test_an_unknown_setting_is_named_and_the_broker_starts() -> None:
    """A slip in a compose file would be silent."""
    assert any(
        "no.such.thing (environment KAFKA_NO_SUCH_THING)" in each for each in load(KAFKA_NO_SUCH_THING="1").warnings
    )


def test_two_variables_that_say_different_things_end_the_start() -> None:
    """One of them would win without a word."""
    with pytest.raises(ConfigError, match="KAFKA_CFG_LISTENERS and environment KAFKA_LISTENERS say different things"):
        load(KAFKA_LISTENERS="PLAINTEXT://:1", KAFKA_CFG_LISTENERS="PLAINTEXT://:2")


def test_kbrokers_own_variables_and_overrides_count_more() -> None:
    """Whoever changes one setting of a compose file by its own name would see no effect."""
    environ = {**OBEY, "KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_RETENTION_HOURS": "5", "KBROKER_NUM_PARTITIONS": "4"}
    config = BrokerConfig.load(None, ("log.retention.hours=6",), environ)
    assert (config.get("num.partitions"), config.get("log.retention.hours")) == (4, 6)
    assert config.origin_of("num.partitions") == "environment KBROKER_NUM_PARTITIONS"


@pytest.mark.parametrize(
    "environ",
    [
        {"KAFKA_OPA_AUTHORIZER_URL": "http://opa"},
        {"KAFKA_SECURITY_PROTOCOL": "SSL"},
        {"KAFKA_SASL_MECHANISM": "PLAIN"},
        {"KAFKA_AUTHORIZER_CLASS_NAME": "com.example.Mine"},
        {"KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks"},
        {"KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds"},
        {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/jaas.conf"},
        {"ALLOW_PLAINTEXT_LISTENER": "no"},
        {"KAFKA_CLIENT_USERS": "a", "KAFKA_CLIENT_PASSWORDS": "b"},
        {"KAFKA_INTER_BROKER_USER": "a", "KAFKA_INTER_BROKER_PASSWORD": "b", "KAFKA_NODE_ID": "1"},
        {"KAFKA_TLS_CLIENT_AUTH": "required", "KAFKA_NODE_ID": "1"},
        {"KAFKA_CERTIFICATE_PASSWORD": "x", "KAFKA_NODE_ID": "1"},
        {"KAFKA_ZOOKEEPER_PROTOCOL": "SASL_SSL"},
        {"KAFKA_ZOOKEEPER_USER": "a", "KAFKA_ZOOKEEPER_PASSWORD": "b"},
        {"KAFKA_ZOOKEEPER_TLS_TYPE": "PEM"},
        {"KAFKA_CFG_LISTENERS": "SASL_PLAINTEXT://:9092"},
        {**SASL, "KAFKA_CLIENT_PASSWORDS": "one"},
        {**SASL, "KAFKA_CFG_ZOOKEEPER_CONNECT": "zookeeper:2181"},
        {"KAFKA_CFG_LISTENERS": "SSL://:9092"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_what_asks_for_protection_that_is_not_there_ends_the_start(environ: dict[str, str]) -> None:
    """A broker that its owner believes protected would serve everybody."""
    with pytest.raises(ConfigError) as caught:
        load(**environ)
    assert "of-bob" not in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"KAFKA_SECURITY_PROTOCOL": "PLAINTEXT"},
        {"KAFKA_ZOOKEEPER_SASL_ENABLED": "false"},
        {"KAFKA_AUTHORIZER_CLASS_NAME": ""},
        {"ALLOW_PLAINTEXT_LISTENER": "yes"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_what_asks_for_no_protection_starts(environ: dict[str, str]) -> None:
    """A compose file that says so would not come up."""
    assert [each.protocol for each in load(**environ).listeners] == ["PLAINTEXT"]


def test_bitnamis_users_are_those_of_plain_and_scram() -> None:
    """Nobody of the compose file would be let in, or everybody."""
    own = {"KAFKA_INTER_BROKER_USER": "broker", "KAFKA_INTER_BROKER_PASSWORD": 'a "quoted" one'}
    found = taken({**SASL, **own})
    text = {key: given.text for key, given in found.settings.items()}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = 'user_alice="of-alice" user_bob="of-bob"'
    assert text["listener.name.client.plain.sasl.jaas.config"] == f"{module} {users};"
    assert text["listener.name.internal.plain.sasl.jaas.config"] == (
        f'{module} username="broker" password="a \\"quoted\\" one" {users} user_broker="a \\"quoted\\" one";'
    )
    assert {(mechanism, user.name) for mechanism, user in found.scram_users} == {
        (f"SCRAM-SHA-{bits}", name) for bits in (256, 512) for name in ("alice", "bob", "broker")
    }
    assert "of-alice" not in repr(found)


def test_a_login_file_gives_each_listener_its_modules(tmp_path: Path) -> None:
    """Listeners would have no users, or those of another one."""
    (tmp_path / "jaas.conf").write_text(
        'KafkaServer { a.PlainLoginModule required user_x="1"; a.ScramLoginModule required username="s"; };\n'
        'inside.KafkaServer { a.PlainLoginModule required user_y="2"; };\n'
        'Client { a.DigestLoginModule required username="z" password="of z"; };\n'
    )
    environ = {
        "KAFKA_LISTENERS": "OUTSIDE://:1,INSIDE://:2",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "OUTSIDE:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
        "KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=/jaas.conf",
        **ZOOKEEPER,
    }
    found = settings(environ, tmp_path)
    assert found["listener.name.outside.plain.sasl.jaas.config"] == 'a.PlainLoginModule required user_x="1";'
    assert found["listener.name.inside.plain.sasl.jaas.config"] == 'a.PlainLoginModule required user_y="2";'
    assert found["listener.name.outside.scram-sha-256.sasl.jaas.config"].startswith("a.ScramLoginModule")
    assert "listener.name.inside.scram-sha-256.sasl.jaas.config" not in found
    assert found["kbroker.zookeeper.sasl.username"] == "z"
    assert found["kbroker.zookeeper.sasl.password"] == "of z"
    with pytest.raises(ImageError, match="no listener asks for them"):
        taken({"KAFKA_OPTS": environ["KAFKA_OPTS"]}, tmp_path)


def test_stores_and_their_passwords_come_of_files(tmp_path: Path) -> None:
    """The broker would have no key, or look for it by the name of a file with a password."""
    secrets = tmp_path / "etc" / "kafka" / "secrets"
    secrets.mkdir(parents=True)
    for name, text in {"k.jks": "", "t.jks": "", "creds": "pass word\n"}.items():
        (secrets / name).write_text(text)
    found = settings(
        {
            "KAFKA_ADVERTISED_LISTENERS": "SSL://here:1",
            "KAFKA_SSL_KEYSTORE_FILENAME": "k.jks",
            "KAFKA_SSL_TRUSTSTORE_FILENAME": "t.jks",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds",
            "KAFKA_SSL_KEY_CREDENTIALS": "creds",
            "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "creds",
        },
        tmp_path,
    )
    assert found["ssl.keystore.location"] == "/etc/kafka/secrets/k.jks"
    assert found["ssl.truststore.location"] == "/etc/kafka/secrets/t.jks"
    passwords = {found[key] for key in ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password")}
    assert passwords == {"pass word"}


@pytest.mark.parametrize("kind", ["JKS", "PEM"])
def test_bitnamis_certificates_are_found_by_their_names(tmp_path: Path, kind: str) -> None:
    """A listener with TLS would have no key."""
    certificates = tmp_path / "bitnami" / "kafka" / "config" / "certs"
    certificates.mkdir(parents=True)
    for name in ("keystore.jks", "truststore.jks", "keystore.key", "keystore.pem", "truststore.pem"):
        (certificates / f"kafka.{name}").write_text(name)
    found = settings(
        {"KAFKA_CFG_LISTENERS": "SSL://:1", "KAFKA_TLS_TYPE": kind, "KAFKA_CERTIFICATE_PASSWORD": "pw"}, tmp_path
    )
    assert (found["ssl.client.auth"], found["ssl.key.password"]) == ("required", "pw")
    if kind == "PEM":
        assert found["ssl.keystore.key"] == "keystore.key"
        assert found["ssl.truststore.certificates"] == "truststore.pem"
    else:
        assert found["ssl.keystore.location"] == "/bitnami/kafka/config/certs/kafka.keystore.jks"


def test_the_environment_stands_above_a_mounted_file(tmp_path: Path) -> None:
    """Settings of the file, or of the environment, would be lost."""
    mounted = tmp_path / "mnt" / "shared" / "config" / "server.properties"
    mounted.parent.mkdir(parents=True)
    mounted.write_text("listeners=PLAINTEXT://:7\n")
    found = taken({"KAFKA_NUM_PARTITIONS": "3"}, tmp_path)
    assert found.file == mounted
    assert {key: given.text for key, given in found.settings.items()} == {"num.partitions": "3"}


def test_a_mounted_files_listeners_count_for_security(tmp_path: Path) -> None:
    """Users of a login file would be refused, as the environment has no listener, or be nobody's."""
    mounted = tmp_path / "mnt" / "shared" / "config" / "server.properties"
    mounted.parent.mkdir(parents=True)
    mounted.write_text("listeners=SASL_PLAINTEXT://:7\nsasl.enabled.mechanisms=PLAIN\n")
    (tmp_path / "jaas.conf").write_text('KafkaServer { a.PlainLoginModule required user_x="1"; };')
    environ = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/jaas.conf", "KAFKA_SASL_MECHANISM": "PLAIN"}
    found = settings(environ, tmp_path)
    assert found == {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'a.PlainLoginModule required user_x="1";',
        "sasl.mechanism": "PLAIN",
    }
    with pytest.raises(ImageError, match="OPA"):
        taken({**environ, "KAFKA_OPA_AUTHORIZER_URL": "http://opa"}, tmp_path)


def test_a_single_combined_node_is_alone_with_its_zookeeper_left_out() -> None:
    """It would look for a ZooKeeper that a compose file for KRaft has not got."""
    config = load(
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_NODE_ID="1",
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@kafka:9093",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093",
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://kafka:9092",
        **ZOOKEEPER,
    )
    assert not config.get("zookeeper.connect")
    assert any("KAFKA_ZOOKEEPER_CONNECT has no effect" in each for each in config.warnings)
    assert config.is_quorum_of_one
    of_two = {"KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "a:9093,b:9093"}
    of_two |= {"KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
    assert load(**of_two, KAFKA_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093").is_voter
    with pytest.raises(ConfigError, match=r"controller.listener.names must contain at least one value appearing"):
        load(**of_two)


@pytest.mark.parametrize(
    ("text", "separator", "topics"),
    [
        ("", ",", []),
        ("a:1:1,b:3:2:compact", ",", [PlannedTopic("a", 1, 1), PlannedTopic("b", 3, 2, {"cleanup.policy": "compact"})]),
        ("a:1:1\nb:2:1\n", "$'\\n'", [PlannedTopic("a", 1, 1), PlannedTopic("b", 2, 1)]),
        (
            "a:4:1:delete --config=retention.ms=60000 --config=segment.bytes=26214400",
            ",",
            [
                PlannedTopic(
                    "a", 4, 1, {"cleanup.policy": "delete", "retention.ms": "60000", "segment.bytes": "26214400"}
                )
            ],
        ),
    ],
)
def test_topics_are_planned_as_wurstmeisters_script_reads_them(
    text: str, separator: str, topics: list[PlannedTopic]
) -> None:
    """They would not be there, or have other partitions and settings."""
    environ = {"KAFKA_CREATE_TOPICS": text, "KAFKA_CREATE_TOPICS_SEPARATOR": separator}
    assert planned_topics(environ) == topics


@pytest.mark.parametrize("text", ["a", "a:1", "a:x:1", ":1:1", "a:0:1", "a:1:1:compact --force"])
def test_what_is_no_topic_ends_the_start(text: str) -> None:
    """Half of the topics would be missing without a word."""
    with pytest.raises(ImageError, match="KAFKA_CREATE_TOPICS"):
        planned_topics({"KAFKA_CREATE_TOPICS": text})


def test_commands_give_variables_and_stand_in_others() -> None:
    """Clients would be sent to `_{HOSTNAME_COMMAND}`."""
    environ = {
        "HOSTNAME_COMMAND": "a",
        "BROKER_ID_COMMAND": "b",
        "RACK_COMMAND": "c",
        "KAFKA_BROKER_RACK": "there",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://_{HOSTNAME_COMMAND}:9092",
    }
    found = with_commands(environ, lambda _name, line: f"{line}{line}\n")
    assert found["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://aa:9092"
    assert (found["KAFKA_BROKER_ID"], found["KAFKA_BROKER_RACK"]) == ("bb", "there")
    assert found["KAFKA_ADVERTISED_HOST_NAME"] == "aa"


def test_a_cluster_has_one_id() -> None:
    """The directories would be of another cluster than half of the variables say."""
    assert cluster_id({"CLUSTER_ID": "x", "KAFKA_KRAFT_CLUSTER_ID": "x"}) == "x"
    assert cluster_id({}) == ""
    with pytest.raises(ImageError):
        cluster_id({"CLUSTER_ID": "x", "KAFKA_KRAFT_CLUSTER_ID": "y"})
