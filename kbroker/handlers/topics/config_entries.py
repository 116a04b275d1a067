"""Settings as answers describe them: value, source, type and synonyms, for topics and for this broker.

Sources and synonyms follow Kafka's ConfigHelper.  After a topic's own setting come the broker settings behind it: first
those that were set, then defaults.  Entries before the first one with the setting's own broker-side name are dropped.
So DescribeConfigs does not show `log.retention.hours` as the source of a topic's `retention.ms`, though it is.
CreateTopics does (`value_source`), because there Kafka's controller resolves the setting, not the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from kbroker.config import (
    BrokerConfig,
    ConfigRow,
    broker_config_rows,
    client_metrics_rows,
    group_config_rows,
    group_value_from_broker,
    render_value,
    topic_config_rows,
    topic_value_from_broker,
)
from kbroker.config.judgement import find_row
from kbroker.config.origin import with_origin


class ConfigSource(IntEnum):
    """Where a value comes from, as Kafka numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One place that could give a setting its value, best first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting with all that can be said of it."""

    name: str
    value: str | None
    source: ConfigSource
    sensitive: bool
    read_only: bool
    type_code: int
    doc: str
    synonyms: tuple[Synonym, ...]
    value_source: ConfigSource

    @property
    def is_default(self) -> bool:
        """What DescribeConfigs v0 calls default."""
        return self.source is ConfigSource.DEFAULT


_LEVELS = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.STATIC_BROKER)
_SIBLINGS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SIBLINGS_OF: dict[str, tuple[str, ...]] = {name: names for names in _SIBLINGS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str], *, read: bool) -> Sequence[ConfigEntry]:
    """Every setting of a topic with these overrides, by name; internal ones only where they are set.

    `read`: values as they are read, which DescribeConfigs shows; CreateTopics repeats what it got.  For the same
    overrides it is mostly the same sequence: most topics share their settings.
    """
    return _topic_entries(config, frozenset(overrides.items()), read)


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Sequence[ConfigEntry]:
    """Every setting of a group with these overrides."""
    defaults = _group_defaults(config)
    if not overrides:
        return defaults
    entries = list(defaults)
    for index, row in enumerate(group_config_rows()):
        if row.name in overrides:
            value = _as_parsed(row, overrides[row.name])
            synonyms = (Synonym(row.name, value, ConfigSource.GROUP), *defaults[index].synonyms)
            entries[index] = _entry(row, value, synonyms, read_only=False)
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a subscription to client metrics with these overrides."""
    entries = []
    for row in client_metrics_rows():
        if row.name in overrides:
            value = _as_parsed(row, overrides[row.name])
            synonyms = (Synonym(row.name, value, ConfigSource.CLIENT_METRICS),)
            entries.append(_entry(row, value, synonyms, read_only=False))
        else:
            entries.append(_entry(row, render_value(row.default), (), read_only=False))
    return entries


def _as_parsed(row: ConfigRow, text: str) -> str:
    """What was set as it is read; as it is where it is not valid any more."""
    with suppress(ValueError):
        return render_value(row.parse(text)) or ""
    return text


def entries_for_all_brokers(config: BrokerConfig) -> list[ConfigEntry]:
    """What was set at run time for all brokers, by name."""
    entries = []
    for name, value in sorted(config.levels()[1].items()):
        entries.append(_changed_entry(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER))
    return entries


def _changed_entry(name: str, value: object, source: ConfigSource) -> ConfigEntry:
    """What was set at run time, for all listeners or for one."""
    row = _broker_rows().get(name) or find_row(name)[0]
    if row is None:
        raise KeyError(name)
    synonym = Synonym(name, None if row.sensitive else render_value(value), source)
    return _entry(row, synonym.value, (synonym,), read_only=row.read_only)._replace(name=name)


def broker_entries(config: BrokerConfig, node_id: int) -> list[ConfigEntry]:
    """Every setting of this broker, by name."""
    return list(_broker_entries(config, node_id))


# A change of settings makes another BrokerConfig, and tools ask for those of all topics at once.


@lru_cache(maxsize=2)
def _topic_defaults(config: BrokerConfig) -> dict[str, ConfigEntry]:
    rows = sorted(topic_config_rows(), key=lambda row: row.name)
    return {row.name: _topic_entry(config, row, None) for row in rows if not row.internal}


@lru_cache(maxsize=256)
def _topic_entries(config: BrokerConfig, overrides: frozenset[tuple[str, str]], read: bool) -> tuple[ConfigEntry, ...]:
    defaults = _topic_defaults(config)
    set_here = {}
    for name, text in overrides:
        row = _topic_rows().get(name)
        if row is not None:
            set_here[name] = _topic_entry(config, row, _as_parsed(row, text) if read else text)
    merged = [set_here.get(name, entry) for name, entry in defaults.items()]
    internal = [entry for name, entry in set_here.items() if name not in defaults]
    return tuple(sorted(merged + internal) if internal else merged)


@lru_cache(maxsize=2)
def _group_defaults(config: BrokerConfig) -> tuple[ConfigEntry, ...]:
    entries = []
    for row in group_config_rows():
        value = render_value(group_value_from_broker(row.name, config))
        synonyms: tuple[Synonym, ...] = (Synonym(row.name, value, ConfigSource.DEFAULT),)
        if row.synonyms:
            synonyms = _broker_synonyms(config, row.synonyms[0], _broker_rows())
        entries.append(_entry(row, value, synonyms, read_only=False))
    return tuple(entries)


@lru_cache(maxsize=2)
def _broker_entries(config: BrokerConfig, node_id: int) -> tuple[ConfigEntry, ...]:
    rows = _broker_rows()
    effective = {"node.id": str(node_id), "broker.id": str(node_id), "log.dirs": ",".join(config.log_dirs)}
    entries = []
    for row in rows.values():
        if row.internal and row.name not in config.explicit:
            continue
        value = effective.get(row.name, render_value(config.value_of(row.name)))
        synonyms = _broker_synonyms(config, row.name, rows)
        entry = _entry(row, None if row.sensitive else value, synonyms, read_only=row.read_only)
        if entry.source is ConfigSource.STATIC_BROKER:
            entry = entry._replace(doc=with_origin(entry.doc, config.origin_of(row.name)))
        entries.append(entry)
    for level, source in zip(config.levels()[:2], _LEVELS[:2], strict=True):
        entries += [_changed_entry(name, level[name], source) for name in level if name not in rows]
    return tuple(sorted(entries))


@lru_cache(maxsize=1)
def _broker_rows() -> dict[str, ConfigRow]:
    return {row.name: row for row in broker_config_rows()}


@lru_cache(maxsize=1)
def _topic_rows() -> dict[str, ConfigRow]:
    return {row.name: row for row in topic_config_rows()}


def _topic_entry(config: BrokerConfig, row: ConfigRow, text: str | None) -> ConfigEntry:
    """One setting of a topic that sets it to `text`, or does not set it."""
    synonyms: tuple[Synonym, ...] = ()
    if row.synonyms:
        synonyms = _broker_synonyms(config, row.synonyms[0], _broker_rows())
    if text is not None:
        synonyms = (Synonym(row.name, text, ConfigSource.TOPIC), *synonyms)
        return _entry(row, text, synonyms, read_only=False)
    value = render_value(topic_value_from_broker(row.name, config))
    entry = _entry(row, value, synonyms, read_only=False)
    set_by = ((source, name) for source, values in _set_by(config) for name in row.synonyms if name in values)
    value_source, name = next(set_by, (ConfigSource.DEFAULT, ""))
    if value_source is ConfigSource.STATIC_BROKER:
        entry = entry._replace(doc=with_origin(entry.doc, f"{name}: {config.origin_of(name)}"))
    return entry._replace(value_source=value_source)


def _set_by(config: BrokerConfig) -> Iterator[tuple[ConfigSource, Mapping[str, object]]]:
    return zip(_LEVELS, config.levels(), strict=True)


def _entry(row: ConfigRow, value: str | None, synonyms: tuple[Synonym, ...], read_only: bool) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    doc = row.doc if row.implemented else f"{row.doc} (No effect here: {row.reason}.)"
    return ConfigEntry(row.name, value, source, row.sensitive, read_only, row.type.value, doc, synonyms, source)


def _broker_synonyms(config: BrokerConfig, name: str, rows: Mapping[str, ConfigRow]) -> tuple[Synonym, ...]:
    names: Sequence[str] = _SIBLINGS_OF.get(name, (name,))
    found: list[Synonym] = []
    for source, values in _set_by(config):
        for sibling in names:
            if sibling in values:
                value = None if rows[sibling].sensitive else render_value(values[sibling])
                found.append(Synonym(sibling, value, source))
    for sibling in names:
        default = rows[sibling].default
        if default is not None:
            value = None if rows[sibling].sensitive else render_value(default)
            found.append(Synonym(sibling, value, ConfigSource.DEFAULT))
    while found and found[0].name != name:
        found.pop(0)
    return tuple(found)
