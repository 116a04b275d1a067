"""Broker settings changed at run time: who wins, what is refused, and what a restart finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import InvalidRequestError
from kbroker.metadata.broker_settings import ALL_BROKERS, BrokerSettings
from kbroker.metadata.local_store import LocalStore

FILE = "metadata.sqlite"
KEY = "log.retention.ms"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore.open(tmp_path / FILE)
    yield opened
    opened.close()


def static(**values: object) -> BrokerConfig:
    return BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in values.items()})


def test_the_nearest_setting_wins(store: LocalStore) -> None:
    """A broker's own setting would be hidden by the one for all, or by server.properties."""
    settings = BrokerSettings(static(log_retention_ms=1), store, 4)
    heard: list[int] = []
    settings.subscribe(lambda config: heard.append(config.get(KEY)))
    settings.replace(ALL_BROKERS, {KEY: "2"})
    settings.replace("4", {KEY: "3"})
    settings.replace("5", {KEY: "9"})
    assert settings.config.levels() == ({KEY: 3}, {KEY: 2}, {KEY: 1})
    assert settings.config.explicit == {KEY}
    settings.replace("4", {})
    settings.replace(ALL_BROKERS, {})
    assert heard == [2, 3, 3, 2, 1]


def test_a_restart_finds_what_was_set(store: LocalStore) -> None:
    """Settings changed at run time would be gone with the process."""
    BrokerSettings(static(), store, 4).replace("4", {KEY: " 3 "})
    again = BrokerSettings(static(), store, 4)
    assert again.config.get(KEY) == 3
    assert BrokerSettings(static(), store, 5).config.get(KEY) is None


def test_nothing_is_kept_of_what_is_refused_or_only_checked(store: LocalStore) -> None:
    """A setting that was refused would come into force with the next restart."""
    settings = BrokerSettings(static(), store, 4)
    settings.replace(ALL_BROKERS, {KEY: "2"}, validate_only=True)
    for refused in ({KEY: "x"}, {"log.dirs": "/tmp"}, {"no.such": "1"}, {KEY: "5", "num.io.threads": "4"}):
        with pytest.raises(InvalidRequestError):
            settings.replace(ALL_BROKERS, refused)
    with pytest.raises(InvalidRequestError, match="at default cluster level"):
        settings.replace(ALL_BROKERS, {"cordoned.log.dirs": "/tmp"})
    assert store.broker_configs() == {}
    assert settings.config.levels() == ({}, {}, {})


def test_a_stored_setting_that_is_not_valid_any_more_is_left_out(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker would not start after an upgrade that no longer takes a value."""
    store.alter_broker_config(ALL_BROKERS, {KEY: "x", "num.io.threads": "4", "log.segment.bytes": "2000000"})
    settings = BrokerSettings(static(), store, 4)
    assert settings.config.levels()[1] == {"log.segment.bytes": 2_000_000}
    assert "log.retention.ms=x" in caplog.text
    assert "num.io.threads=4" in caplog.text
    settings.replace(ALL_BROKERS, {**settings.own(ALL_BROKERS), "message.max.bytes": "5"})
    assert store.broker_configs()[ALL_BROKERS]["message.max.bytes"] == "5"


def test_a_part_that_follows_has_a_say(store: LocalStore) -> None:
    """A value that one part cannot run with would be stored, and shown as if it were in force."""
    settings = BrokerSettings(static(), store, 4)

    def refuse(config: BrokerConfig) -> None:
        if config.get("log.cleaner.threads") > 2:
            raise ValueError("too many")

    settings.guard(refuse)
    settings.replace(ALL_BROKERS, {"log.cleaner.threads": "2"})
    with pytest.raises(InvalidRequestError, match="too many"):
        settings.replace("4", {"log.cleaner.threads": "3"})
    settings.replace("4", {"log.cleaner.threads": "1"})
    assert settings.config.get("log.cleaner.threads") == 1
    assert store.broker_configs() == {ALL_BROKERS: {"log.cleaner.threads": "2"}, "4": {"log.cleaner.threads": "1"}}


def test_what_is_stored_and_no_longer_fits_server_properties_is_left_out_until_it_is_mended(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker would not start after server.properties was changed, or run with values that contradict each other."""
    key = "log.cleaner.dedupe.buffer.size"
    BrokerSettings(static(), store, 4).replace(ALL_BROKERS, {key: "5000000", KEY: "7"})
    settings = BrokerSettings(static(log_cleaner_threads=8), store, 4)
    assert settings.config.levels()[1] == {}
    assert "at least 1MB per cleaner thread" in caplog.text
    with pytest.raises(InvalidRequestError, match="at least 1MB per cleaner thread"):
        settings.replace(ALL_BROKERS, {key: "5000000", KEY: "8"})
    settings.replace(ALL_BROKERS, {key: "50000000", KEY: "8"})
    assert settings.config.levels()[1] == {key: 50_000_000, KEY: 8}


def test_a_store_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """A broker would not start on the data of the version before."""
    store = LocalStore.open(tmp_path / FILE)
    cluster_id = store.cluster_id
    store.close()
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("DROP TABLE broker_configs")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = LocalStore.open(tmp_path / FILE, cluster_id)
    store.alter_broker_config("", {KEY: "1"})
    store.close()
    store = LocalStore.open(tmp_path / FILE, cluster_id)
    assert store.broker_configs() == {"": {KEY: "1"}}
    store.close()
