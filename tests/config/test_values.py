"""Types and checks, held against what Apache Kafka 4.3.1 answered.

vectors/topic_configs.json: CreateTopics (validate only) with these settings, and the error text, null when accepted.
vectors/broker_defaults.json: DescribeConfigs of a broker: default and whether read-only.

Also of `kbroker.config.check`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbroker
from kbroker.config import ConfigType, LogConfig, broker_config_rows, render_value, validate_topic_config
from kbroker.config.broker import environment_name
from kbroker.config.table import BROKER_TABLE, DIFFERENT_DEFAULTS
from kbroker.config.value import InvalidValueError, parse_value
from kbroker.errors import ErrorCode, InvalidConfigError

VECTORS = Path(__file__).parent / "vectors"
# Settings of Kafka 3.9 that Kafka 4 dropped and kbroker has.
OLD_SETTINGS = {"message.format.version", "message.downconversion.enable"}
TOPIC_CASES = [
    case for case in json.loads((VECTORS / "topic_configs.json").read_text()) if not OLD_SETTINGS & set(case["configs"])
]
BROKER_DEFAULTS: dict[str, tuple[str | None, bool]] = json.loads((VECTORS / "broker_defaults.json").read_text())


@pytest.mark.parametrize("case", TOPIC_CASES, ids=lambda case: str(case["configs"]))
def test_topic_settings_are_judged_in_kafkas_words(case: dict[str, Any]) -> None:
    """A tool that shows or matches Kafka's error text would show something else."""
    if case["error"] is None:
        validate_topic_config(case["configs"])
        return
    with pytest.raises(InvalidConfigError) as caught:
        validate_topic_config(case["configs"])
    assert caught.value.message == case["error"]
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_message_formats_of_topics_are_releases_of_kafka() -> None:
    """A misspelt release would silently store another format than old consumers can read."""
    for release, magic in (("0.8.2", 0), ("0.9.0", 0), ("0.10.0", 1), ("0.10.2-IV0", 1), ("0.11.0", 2), ("3.0-IV1", 2)):
        validate_topic_config({"message.format.version": release})
        assert LogConfig(message_format_version=release).message_magic == magic
    for release in ("", "9", "latest", "0.11"):
        with pytest.raises(InvalidConfigError, match="is not a valid version"):
            validate_topic_config({"message.format.version": release})


def test_null_topic_settings_are_refused() -> None:
    """A client that sends a null value would create a topic with a default it did not ask for."""
    with pytest.raises(InvalidConfigError, match="Null value not supported for topic configs: a,b"):
        validate_topic_config({"b": None, "a": None})


@pytest.mark.parametrize("name", sorted(BROKER_DEFAULTS))
def test_broker_defaults_are_kafkas(name: str) -> None:
    """A broker moved from Kafka would run by other settings without a word."""
    row = BROKER_TABLE[name]
    default, read_only = BROKER_DEFAULTS[name]
    if name not in DIFFERENT_DEFAULTS:
        assert render_value(row.default) == default
    assert row.read_only == read_only


def test_different_defaults_differ() -> None:
    """The documentation would name differences that are none."""
    for name, (kafka, why) in DIFFERENT_DEFAULTS.items():
        assert render_value(BROKER_TABLE[name].default) != kafka
        assert why


def test_every_default_passes_its_own_check() -> None:
    """Writing a default into the file would stop the start."""
    for row in broker_config_rows():
        text = render_value(row.default)
        if text is not None and not (text == "" and "nonempty" in row.check):
            assert row.parse(text) == row.default, row.name


def test_environment_names_are_unique() -> None:
    """One variable would set two settings."""
    assert len({environment_name(row.name) for row in broker_config_rows()}) == len(broker_config_rows())


def test_log_config_defaults_are_the_tables() -> None:
    """Logs made without settings would behave unlike the documentation."""
    from kbroker.config import topic_config_rows

    config = LogConfig()
    for row in topic_config_rows():
        value = getattr(config, row.name.replace(".", "_"))
        assert (sorted(value) if isinstance(value, frozenset | tuple) else value) == row.default, row.name


@given(st.integers(-(2**70), 2**70))
def test_integers_are_read_within_javas_ranges(number: int) -> None:
    """A value that Kafka refuses would be taken, or the other way round."""
    for kind, bits in ((ConfigType.SHORT, 16), (ConfigType.INT, 32), (ConfigType.LONG, 64)):
        if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            assert parse_value("k", kind, f" {number}\t") == number
        else:
            with pytest.raises(InvalidValueError, match=f"Not a number of type {kind.name}"):
                parse_value("k", kind, str(number))


@pytest.mark.parametrize("text", ["1" * 5000, "", "-", "٣", "0x10", "1L", "1 2"])
def test_what_java_does_not_read_as_an_integer_is_refused(text: str) -> None:
    """A typo would become a number."""
    with pytest.raises(InvalidValueError):
        parse_value("k", ConfigType.LONG, text)


@given(st.floats(allow_nan=False))
def test_doubles_survive_printing(number: float) -> None:
    """A value read from DescribeConfigs and written back would change."""
    text = render_value(number)
    assert text is not None
    assert parse_value("k", ConfigType.DOUBLE, text) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-12345678.9, "-1.23456789E7"),
    ],
)
def test_doubles_print_as_java_prints_them(number: float, text: str) -> None:
    """DescribeConfigs would show a number that Kafka writes otherwise."""
    assert render_value(number) == text


def test_settings_are_acted_on_as_the_table_says() -> None:
    """The broker would take a setting without a warning and do nothing with it, or warn of one that works."""
    from kbroker.config import group_config_rows, topic_config_rows

    package = Path(kbroker.__file__).parent
    sources = "".join(path.read_text() for path in sorted(package.rglob("*.py")) if not path.name.endswith("_rows.py"))
    through_topics = {name for row in topic_config_rows() if row.implemented for name in row.synonyms}
    # metadata/internal_topics.py and config/group.py put these names together from a prefix.
    rests = ("replication.factor", "num.partitions", "segment.bytes", "min.isr")
    prefixes = ("offsets.topic", "share.coordinator.state.topic", "transaction.state.log")
    composed = {f"{prefix}.{rest}" for prefix in prefixes for rest in rests}
    for row in group_config_rows():
        kind, _, rest = row.name.partition(".")
        if row.implemented:
            composed |= {f"group.{kind}.{rest}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"}
    for row in broker_config_rows():
        read = f'"{row.name}"' in sources or row.name in through_topics | composed
        if row.implemented:
            assert read, f"{row.name} is marked as acted on, and nothing reads it"
