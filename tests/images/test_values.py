"""A variable's value is what Java reads of the server.properties into which the images write it.

Of `kbroker.config.images.values`, with `kbroker.config.images.settings` and `kbroker.config.images.stores`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.images.settings import ImageSettings, image_settings
from kbroker.config.images.values import written
from kbroker.config.properties import PropertiesError
from kbroker.security.sasl.settings import SaslSettingsError, sasl_settings

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
NAMES = {
    "apache/kafka and cp-kafka": "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
    "bitnami/kafka": "KAFKA_CFG_LISTENER_NAME_SASL_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
}
USERS = {"username": "admin", "password": "of admin", "user_admin": "of admin"}
SHAPES = {
    "lines that go on, kept": f"""\
name: |
  {MODULE} \\
  username="admin" \\
  password="of admin" \\
  user_admin="of admin" ;
""",
    "lines that go on, kept without the last end": f"""\
name: |-
    {MODULE} \\
        username="admin" \\
        password="of admin" \\
        user_admin="of admin";
""",
    "lines that go on, with lines behind": f"""\
name: |+
  {MODULE} \\
    username="admin" password="of admin" \\
    user_admin="of admin";

  # the users of brokers

""",
    "a last line that would go on": f"""\
name: |
  {MODULE} \\
  username="admin" \\
  password="of admin" \\
  user_admin="of admin"; \\
""",
    "folded": f"""\
name: >
  {MODULE}
  username="admin"
  password="of admin"
  user_admin="of admin";
""",
    "folded without the last end": f"""\
name: >-
  {MODULE}
  username="admin" password="of admin"
  user_admin="of admin";
""",
    "in quotes over lines": f"""\
name: "{MODULE} \\
  username=\\"admin\\" password=\\"of admin\\" \\
  user_admin=\\"of admin\\";"
""",
    "in single quotes": f"""\
name: '{MODULE} username="admin" password="of admin" user_admin="of admin";'
""",
    "one line": f"""\
name: {MODULE} username="admin" password="of admin" user_admin="of admin";
""",
    "single quotes of Java's": f"""\
name: {MODULE} username='admin' password='of admin' user_admin='of admin';
""",
}
WITH_SASL = {"KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092", "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN"}


def taken(environ: dict[str, str], root: Path | None = None) -> ImageSettings:
    """What an environment says in a container that has nothing mounted."""
    return image_settings(environ, root=root or Path("/nowhere"), mounts=(), host_name="box")


def load(environ: dict[str, str]) -> BrokerConfig:
    """The broker's settings by an environment."""
    return BrokerConfig.load(None, (), {"KBROKER_KAFKA_VARIABLES": "obey", "HOSTNAME": "box", **environ})


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_login_module_of_a_compose_file_has_its_users_in_every_shape(shape: str, name: str) -> None:
    """The container of a public compose file would end with an error about its login module."""
    value = yaml.safe_load(shape)["name"]
    config = load({**WITH_SASL, name: value})
    assert not [each for each in config.warnings if "line" in each or "backslash" in each]
    (mechanism,) = sasl_settings(config, "SASL_PLAINTEXT").mechanisms
    assert mechanism.options == USERS


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_login_module_whose_lines_do_not_go_on_ends_the_start_as_with_the_image(name: str) -> None:
    """A broker would start with users whom the image's Kafka does not know, or end without a word about the lines."""
    config = load({**WITH_SASL, name: f'{MODULE}\nusername="admin"\npassword="of admin"\nuser_admin="of admin";\n'})
    (warning,) = (each for each in config.warnings if name in each)
    assert "line 2, 3, 4" in warning and "of admin" not in warning and "username" not in warning
    with pytest.raises(SaslSettingsError, match="not terminated by semi-colon"):
        sasl_settings(config, "SASL_PLAINTEXT")


def test_a_further_line_of_a_value_is_a_setting_of_its_own() -> None:
    """A setting that the image's Kafka has would be part of another one's value."""
    found = taken({"KAFKA_NUM_PARTITIONS": "3\nlog.retention.hours = 5\n# a comment\n"})
    assert (found.settings["num.partitions"].text, found.settings["log.retention.hours"].text) == ("3", "5")
    assert found.settings["log.retention.hours"].origin == "environment KAFKA_NUM_PARTITIONS line 2"
    with pytest.raises(ConfigError, match=r"KAFKA_NUM_PARTITIONS line 2 and .*KAFKA_LOG_RETENTION_HOURS say different"):
        load({"KAFKA_NUM_PARTITIONS": "3\nlog.retention.hours=5", "KAFKA_LOG_RETENTION_HOURS": "6"})


def test_a_backslash_at_the_end_is_named() -> None:
    """With the image it takes the next setting into the value, without a word."""
    found = taken({"KAFKA_BROKER_RACK": "a\\"})
    assert found.settings["broker.rack"].text == "a"
    assert any("KAFKA_BROKER_RACK ends in a backslash" in each for each in found.warnings)


@pytest.mark.parametrize(
    ("value", "text", "others"),
    [
        ("RULE:^CN=(\\\\w+),.*$/$1/", "RULE:^CN=(\\w+),.*$/$1/", {}),
        ("a\\tb\\u00e9\\q", "a\tb\u00e9q", {}),
        ("  blanks  ", "blanks  ", {}),
        ("= a:b", "= a:b", {}),
        ("", "", {}),
        ("\na", "", {"a": ""}),
        ("a\r\nb c\r\n", "a", {"b": "c"}),
        ("a\\\n# no comment\n! a comment\n", "a# no comment", {}),
        ("a\\\\\nb", "a\\", {"b": ""}),
        ("a\\\n\nb", "a", {"b": ""}),
    ],
)
def test_a_value_is_read_as_java_reads_the_file(value: str, text: str, others: dict[str, str]) -> None:
    """Rules with backslashes would mean another thing than with the image."""
    found = written(value)
    assert (found.text, {each.key: each.value for each in found.lines}) == (text, others)
    assert not found.takes_next and "w+" not in repr(found)


def test_what_java_refuses_ends_the_start() -> None:
    """The broker would start with a setting that the image's Kafka ends with."""
    with pytest.raises(PropertiesError):
        written("\\u12")
    with pytest.raises(ConfigError, match=r"environment KAFKA_BROKER_RACK.*\\u must be followed"):
        load({"KAFKA_BROKER_RACK": "\\u12"})


def test_passwords_of_files_and_variables_go_through_the_same_file(tmp_path: Path) -> None:
    """A store whose password was escaped for the image could not be opened."""
    secrets = tmp_path / "etc" / "kafka" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "creds").write_text("pass\\\\word\n")
    found = taken({"KAFKA_SSL_KEY_CREDENTIALS": "creds", "KAFKA_SSL_KEYSTORE_PASSWORD": "pass\\\\word"}, tmp_path)
    assert found.settings["ssl.key.password"].text == found.settings["ssl.keystore.password"].text == "pass\\word"


def test_what_the_images_scripts_read_themselves_stays_as_it_is() -> None:
    """A user's password would be another one, and topics that stand on lines of their own would be lost."""
    names = {"KAFKA_CFG_LISTENERS": "INTERNAL://:1"}
    protocols = {"KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:SASL_PLAINTEXT"}
    users = {"KAFKA_CLIENT_USERS": "alice", "KAFKA_CLIENT_PASSWORDS": "a\\b"}
    found = taken({**names, **protocols, **users, "KAFKA_CREATE_TOPICS": "a:1:1\nb:1:1\n"})
    assert {user.password for _, user in found.scram_users} == {"a\\b"}
    assert not found.warnings
