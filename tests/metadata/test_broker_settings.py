"""Broker settings changed at run time: who wins, what is refused, and what a restart finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.config import BrokerConfig, broker_config_rows
from kbroker.errors import InvalidConfigError, InvalidRequestError
from kbroker.metadata.broker_settings import ALL_BROKERS, is_live
from kbroker.metadata.broker_settings import STORED as STORED_ONLY
from kbroker.metadata.image import ConfigResource, MetadataDelta, PartitionImage
from kbroker.metadata.local_store import APPLICATION_ID, SCHEMA_VERSION, SCHEMAS, LocalStore
from kbroker.metadata.store import MetadataStoreError
from kbroker.types import random_uuid
from tests.cluster.parts import Metadata

FILE = "metadata.sqlite"
KEY = "log.retention.ms"
# What all brokers have without anybody's doing.
STORED, PARSED = {"min.insync.replicas": "1"}, {"min.insync.replicas": 1}


class Node(Metadata):
    """The settings of a node, changed through its controller."""

    def __init__(self, static: BrokerConfig, store: LocalStore, node_id: int) -> None:
        super().__init__(store, static, node_id=node_id)
        self.subscribe, self.guard = self.settings.subscribe, self.settings.guard

    @property
    def config(self) -> BrokerConfig:
        return self.settings.config


def replace(node: Node, broker: str, wanted: Mapping[str, str], *, validate_only: bool = False) -> None:
    """Gives one broker, or all, these settings and no others."""
    node.replace_configs(ConfigResourceType.BROKER, broker, wanted, validate_only=validate_only)


def stored(store: LocalStore) -> dict[str, dict[str, str]]:
    """What the store has for brokers."""
    return {resource.name: values for resource, values in store.configs().items()}


def put(store: LocalStore, broker: str, settings: Mapping[str, str]) -> None:
    """Store the settings of a broker as an earlier start did."""
    store.write(MetadataDelta(configs={ConfigResource(ConfigResourceType.BROKER, broker): settings}))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore.open(tmp_path / FILE)
    yield opened
    opened.close()


def static(**values: object) -> BrokerConfig:
    return BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in values.items()})


def test_the_nearest_setting_wins(store: LocalStore) -> None:
    """A broker's own setting would be hidden by the one for all, or by server.properties."""
    settings = Node(static(log_retention_ms=1), store, 4)
    heard: list[int] = []
    settings.subscribe(lambda config: heard.append(config.get(KEY)))
    replace(settings, ALL_BROKERS, {**STORED, KEY: "2"})
    replace(settings, "4", {KEY: "3"})
    replace(settings, "5", {KEY: "9"})
    assert settings.config.levels() == ({KEY: 3}, {**PARSED, KEY: 2}, {KEY: 1})
    assert settings.config.explicit == {KEY}
    replace(settings, "4", {})
    replace(settings, ALL_BROKERS, STORED)
    assert heard == [2, 3, 3, 2, 1]


def test_a_restart_finds_what_was_set(store: LocalStore) -> None:
    """Settings changed at run time would be gone with the process."""
    replace(Node(static(), store, 4), "4", {KEY: " 3 "})
    again = Node(static(), store, 4)
    assert again.config.get(KEY) == 3
    assert Node(static(), store, 5).config.get(KEY) is None


def test_nothing_is_kept_of_what_is_refused_or_only_checked(store: LocalStore) -> None:
    """A setting that was refused would come into force with the next restart."""
    settings = Node(static(), store, 4)
    replace(settings, ALL_BROKERS, {**STORED, KEY: "2"}, validate_only=True)
    for refused in ({KEY: "x"}, {"log.dirs": "/tmp"}, {"no.such": "1"}, {KEY: "5", "ssl.client.auth": "required"}):
        with pytest.raises(InvalidRequestError):
            replace(settings, ALL_BROKERS, {**STORED, **refused})
    with pytest.raises(InvalidRequestError, match="at default cluster level"):
        replace(settings, ALL_BROKERS, {**STORED, "cordoned.log.dirs": "/tmp"})
    assert stored(store) == {ALL_BROKERS: STORED}
    assert settings.config.levels() == ({}, PARSED, {})


def test_a_stored_setting_that_is_not_valid_any_more_is_left_out(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker would not start after an upgrade that no longer takes a value."""
    put(store, ALL_BROKERS, {KEY: "x", "listeners": "PLAINTEXT://:1", "log.segment.bytes": "2000000"})
    settings = Node(static(), store, 4)
    assert settings.config.levels()[1] == {**PARSED, "log.segment.bytes": 2_000_000}
    assert "log.retention.ms=x" in caplog.text
    assert "listeners=PLAINTEXT://:1" in caplog.text
    replace(
        settings,
        ALL_BROKERS,
        {**settings.cache.image.configs[ConfigResource(4, ALL_BROKERS)], "message.max.bytes": "5"},
    )
    assert stored(store)[ALL_BROKERS]["message.max.bytes"] == "5"


def test_a_part_that_follows_has_a_say(store: LocalStore) -> None:
    """A value that one part cannot run with would be stored, and shown as if it were in force."""
    settings = Node(static(), store, 4)

    def refuse(config: BrokerConfig) -> None:
        if config.get("log.cleaner.threads") > 2:
            raise ValueError("too many")

    settings.guard(refuse)
    replace(settings, ALL_BROKERS, {**STORED, "log.cleaner.threads": "2"})
    with pytest.raises(InvalidRequestError, match="too many"):
        replace(settings, "4", {"log.cleaner.threads": "3"})
    replace(settings, "4", {"log.cleaner.threads": "1"})
    assert settings.config.get("log.cleaner.threads") == 1
    assert stored(store) == {
        ALL_BROKERS: {**STORED, "log.cleaner.threads": "2"},
        "4": {"log.cleaner.threads": "1"},
    }


def test_what_is_stored_and_no_longer_fits_server_properties_is_left_out_until_it_is_mended(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker would not start after server.properties was changed, or run with values that contradict each other."""
    key = "log.cleaner.dedupe.buffer.size"
    replace(Node(static(), store, 4), ALL_BROKERS, {**STORED, key: "5000000", KEY: "7"})
    settings = Node(static(log_cleaner_threads=8), store, 4)
    assert settings.config.levels()[1] == {}
    assert "at least 1MB per cleaner thread" in caplog.text
    with pytest.raises(InvalidRequestError, match="at least 1MB per cleaner thread"):
        replace(settings, ALL_BROKERS, {**STORED, key: "5000000", KEY: "8"})
    replace(settings, ALL_BROKERS, {**STORED, key: "50000000", KEY: "8"})
    assert settings.config.levels()[1] == {**PARSED, key: 50_000_000, KEY: 8}


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_store_of_an_older_version_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    """A broker would not start on the data of the version before."""
    topic_id, cluster_id = random_uuid(), "kbrokerkbrokerkbrokerA"
    connection = sqlite3.connect(tmp_path / FILE)
    connection.executescript("".join(SCHEMAS[:version]))
    connection.execute("INSERT INTO cluster VALUES ('cluster_id', ?)", (cluster_id,))
    connection.execute("INSERT INTO topics VALUES (?, 'old')", (topic_id,))
    connection.execute("INSERT INTO partitions VALUES (?, 0, 1, 2, 3, '1', '1')", (topic_id,))
    if version > 1:
        connection.execute("INSERT INTO broker_configs VALUES ('', ?, '1')", (KEY,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    store = LocalStore.open(tmp_path / FILE, cluster_id)
    assert stored(store) == ({"": {KEY: "1"}} if version > 1 else {})
    assert store.topics()[0].partitions == (PartitionImage(0, 1, 2, (1,), (1,), 3),)
    put(store, "", {KEY: "1"})
    store.close()
    store = LocalStore.open(tmp_path / FILE, cluster_id)
    assert stored(store) == {"": {KEY: "1"}}
    store.close()


@pytest.mark.parametrize("value", [1, 2])
def test_a_new_cluster_has_min_insync_replicas_for_all_brokers(store: LocalStore, value: int) -> None:
    """Tools that compare the settings of clusters would see another source than Kafka's."""
    settings = Node(static(min_insync_replicas=value), store, 4)
    assert stored(store) == {ALL_BROKERS: {"min.insync.replicas": str(value)}}
    with pytest.raises(InvalidConfigError, match="cannot be removed"):
        replace(settings, ALL_BROKERS, {KEY: "1"})
    with pytest.raises(InvalidConfigError, match="cannot be altered"):
        replace(settings, "4", {"min.insync.replicas": "1"}, validate_only=True)
    with pytest.raises(InvalidConfigError, match="cannot be altered"):
        settings.settings.check("4", {}, {}, ["min.insync.replicas"])  # A deletion of what was never set.
    replace(settings, ALL_BROKERS, {"min.insync.replicas": "3"})
    assert settings.config.get("min.insync.replicas") == 3


def test_min_insync_replicas_of_the_cluster_goes_before_server_properties(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator would change server.properties and wonder why nothing changes."""
    Node(static(), store, 4)
    put(store, "4", {"min.insync.replicas": "7", KEY: "1"})
    settings = Node(static(min_insync_replicas=2), store, 4)
    assert settings.config.get("min.insync.replicas") == 1
    assert stored(store) == {ALL_BROKERS: STORED, "4": {KEY: "1"}}
    assert "goes before the 2 of server.properties" in caplog.text


def test_a_start_without_room_for_a_setting_is_a_start(
    store: LocalStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the broker would not come up, not even to have topics deleted."""

    def fail(*_: object) -> None:
        raise MetadataStoreError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "write", fail)
        settings = Node(static(), store, 4)
    assert settings.config.levels()[1] == PARSED
    assert "cannot store the settings of brokers that a cluster begins with: disk full" in caplog.text
    replace(settings, ALL_BROKERS, {**STORED, KEY: "1"})
    assert stored(store) == {ALL_BROKERS: {**STORED, KEY: "1"}}


def test_settings_of_parts_that_are_not_there_are_stored_and_shown(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Tools and suites that set what Kafka stores would get an error."""
    settings = Node(static(), store, 4)
    own = {"sasl.kerberos.min.time.before.relogin": "60001", "num.io.threads": "9"}
    replace(settings, "4", own)
    assert (
        "num.io.threads is stored and shown, and has no effect: kbroker serves requests in one event loop"
        in caplog.text
    )
    assert Node(static(), store, 4).config.levels()[0] == {
        "sasl.kerberos.min.time.before.relogin": 60001,
        "num.io.threads": 9,
    }
    for wrong, reason in (
        ({"sasl.kerberos.min.time.before.relogin": "x"}, "Not a number"),
        ({"num.io.threads": "19"}, "not be greater than double"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            replace(settings, "4", wrong)
    with pytest.raises(InvalidRequestError, match="at default cluster level"):
        replace(settings, ALL_BROKERS, {**STORED, "sasl.kerberos.min.time.before.relogin": "1"})


def test_what_is_stored_without_effect_can_be_changed_in_kafka_and_is_not_acted_on() -> None:
    """A setting in the list by mistake would be refused after all, or look as if it were followed."""
    rows = {row.name: row for row in broker_config_rows()}
    for name in STORED_ONLY:
        assert rows[name].dynamic and not rows[name].implemented, name
        assert not is_live(name)
