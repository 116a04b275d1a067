"""What a request makes of the settings of a resource: pure functions.

SET and DELETE (back to the default), and for lists APPEND and SUBTRACT, which start from the resource's own value or,
where it has none, from its default.  Deleting what is not set, or not known, succeeds, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation
from kbroker.config import BrokerConfig, ConfigRow, ConfigType, render_value, topic_config_rows, topic_value_from_broker
from kbroker.errors import InvalidConfigError

MAX_VALUE_BYTES = 32_767

Settings = dict[str, str]


class ConfigResourceType(IntEnum):
    """What settings belong to, as Kafka numbers it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_TOPIC_ROWS: Mapping[str, ConfigRow] = {row.name: row for row in topic_config_rows()}


def altered(
    own: Mapping[str, str],
    alteration: ConfigAlteration,
    default: Callable[[str], str],
    is_list: Callable[[str], bool],
) -> Settings:
    """The settings that an alteration makes of `own`.

    `default(name)`: the value of a list that is not in `own`.  InvalidConfigError, in Kafka's words, for an operation
    that a setting does not have.
    """
    for edit in alteration.edits:
        if edit.operation >= EditOperation.APPEND and not is_list(edit.name):
            if alteration.resource.kind == ConfigResourceType.BROKER:
                raise InvalidConfigError(
                    f"Config value {edit.operation.name.lower()} is not allowed for config key: {edit.name}"
                )
            raise InvalidConfigError(f"Can't {edit.operation.name} to key {edit.name} because its type is not LIST.")
    return apply_edits({} if alteration.replace else own, alteration.edits, default)


def is_topic_list(name: str) -> bool:
    """Whether a topic's setting is a list."""
    row = _TOPIC_ROWS.get(name)
    return row is not None and row.type is ConfigType.LIST


def topic_default(config: BrokerConfig, name: str) -> str:
    """What a topic has that does not set it."""
    return render_value(topic_value_from_broker(name, config)) or ""


def apply_edits(own: Mapping[str, str], edits: Sequence[ConfigEdit], default: Callable[[str], str]) -> Settings:
    """The settings that `edits` make of `own`.  `default(name)`: the value of a list that is not in `own`."""
    settings = dict(own)
    for edit in edits:
        name = edit.name
        if edit.operation is EditOperation.SET:
            settings[name] = edit.value
        elif edit.operation is EditOperation.DELETE:
            settings.pop(name, None)
        else:
            items = _items(settings[name] if name in settings else default(name))
            known, named = frozenset(items), dict.fromkeys(_items(edit.value))
            if edit.operation is EditOperation.APPEND:
                items += [item for item in named if item not in known]
            else:
                items = [item for item in items if item not in named]
            settings[name] = _fitting(",".join(items))
    return settings


def _fitting(value: str) -> str:
    """Longer than a string on the wire may be, the setting could not be described any more."""
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise InvalidConfigError(
            f"The configuration value cannot be added because it exceeds the maximum value size of {MAX_VALUE_BYTES} "
            "bytes."
        )
    return value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
