"""Every setting that Kafka 4.3.1 has: acted on, refused with the reason, or without effect for a written reason.

vectors/setting_names.json: the names of Kafka's settings, by what they are settings of.

Also of `kbroker.config.cluster_rows`, `kbroker.config.coordinator_rows`, `kbroker.config.group_rows`,
`kbroker.config.log_rows`, `kbroker.config.quorum_rows`, `kbroker.config.remote_rows`, `kbroker.config.security_rows`,
`kbroker.config.server_rows`, `kbroker.config.topic_rows`, `kbroker.config.row`, `kbroker.config.reasons`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.config import (
    BrokerConfig,
    ConfigError,
    ConfigRow,
    broker_config_rows,
    client_metrics_rows,
    group_config_rows,
    render_value,
    topic_config_rows,
)
from kbroker.metadata.broker_settings import STORED, is_live
from kbroker.quotas.rules import CLIENT_KEYS, IP_KEYS

NAMES: dict[str, list[str]] = json.loads((Path(__file__).parent / "vectors" / "setting_names.json").read_text())
DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
TABLES: dict[str, list[ConfigRow]] = {
    "broker": broker_config_rows(),
    "topic": topic_config_rows(),
    "group": group_config_rows(),
    "client-metrics": client_metrics_rows(),
}
WITHOUT_EFFECT = [row for row in broker_config_rows() if row.status == "-"]
REFUSED = [row for row in broker_config_rows() if row.refused]
_VALUES = {
    "BOOLEAN": ("true", "false"),
    "SHORT": ("77",),
    "INT": ("77", "600"),
    "LONG": ("77", "600"),
    "DOUBLE": ("0.6", "0.2"),
}


def another(row: ConfigRow) -> str:
    """A valid value that is not the setting's default."""
    options = row.check.removeprefix("one of ").split(", ") if row.check.startswith("one of ") else ["a", "b"]
    for text in (*_VALUES.get(row.type.name, options), "10000000"):
        try:
            if render_value(row.parse(text)) != render_value(row.default):
                return text
        except ValueError:
            continue
    raise AssertionError(row.name)


@pytest.mark.parametrize("scope", sorted(TABLES))
def test_no_setting_of_kafka_is_left_out(scope: str) -> None:
    """A setting would be called unknown, or be taken without a word about what it does here."""
    known = {row.name: row for row in TABLES[scope]}
    assert [name for name in NAMES[scope] if name not in known] == []
    assert [row.name for row in known.values() if not row.implemented and not row.reason] == []
    assert [name for name in NAMES[scope] if f"| `{name}` |" not in DOCUMENTATION] == []


def test_what_kafka_changes_at_run_time_changes_here_or_is_refused() -> None:
    """A change would be taken and wait for a restart that nobody has been told of."""
    read_at_start = {
        "config.providers",
        "listener.security.protocol.map",
        "listeners",
        "sasl.mechanism.inter.broker.protocol",
    }
    for row in broker_config_rows():
        if row.dynamic:
            answered = is_live(row.name) or row.name in STORED or row.refused
            assert answered != (row.name in read_at_start), row.name
            assert not (is_live(row.name) and not row.implemented), row.name
        else:
            assert not is_live(row.name), row.name


def test_no_quota_of_kafka_is_left_out() -> None:
    """A quota that tools set would be refused as unknown."""
    assert sorted(CLIENT_KEYS | IP_KEYS) == sorted(NAMES["quota-entity"])
    assert [name for name in NAMES["quota-entity"] if f"`{name}`" not in DOCUMENTATION] == []


@pytest.mark.parametrize("row", WITHOUT_EFFECT, ids=lambda row: row.name)
def test_a_setting_without_effect_is_taken_with_a_warning_that_says_why(row: ConfigRow) -> None:
    """The user would wait for an effect that never comes."""
    config = BrokerConfig.from_mapping({row.name: another(row)})
    assert f"{row.name} (given) has no effect: {row.reason}" in config.warnings


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_a_setting_that_asks_for_what_is_not_there_stops_the_start(row: ConfigRow) -> None:
    """Something would be served with less than was asked for."""
    with pytest.raises(ConfigError, match="refuses to start"):
        BrokerConfig.from_mapping({row.name: another(row)})
    if row.default is not None:
        assert BrokerConfig.from_mapping({row.name: row.default}).get(row.name) == row.default
