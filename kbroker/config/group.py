"""Settings of a group: validation with Kafka's texts, and the values that a group runs by.

A group's setting comes from the group, else from the broker setting behind it, else from the table.  What the table
calls acted on is acted on by the kinds of groups that this broker serves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbroker.config.table import BROKER_TABLE, GROUP_TABLE
from kbroker.config.value import InvalidValueError, UnacceptableListError
from kbroker.errors import InvalidConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

AUTO_OFFSET_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"P(?=[0-9T])(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{0,9})?S)?)?", re.IGNORECASE
)
_OTHER_BOUNDS = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}
_KINDS = ("consumer", "share", "streams")

GroupConfig = Mapping[str, Any]
"""The values that a group runs by, by the setting's name."""


def group_value_from_broker(key: str, broker: BrokerConfig) -> object:
    """What setting `key` is for a group that does not set it."""
    row = GROUP_TABLE[key]
    return broker.value_of(row.synonyms[0]) if row.synonyms else row.default


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """The settings of a group.  A value that was stored and is not valid any more is left out."""
    values = {name: group_value_from_broker(name, broker) for name in GROUP_TABLE}
    for name, text in overrides.items():
        row = GROUP_TABLE.get(name)
        if row is None:
            continue
        try:
            value = row.parse(text)
        except InvalidValueError:
            continue
        low, high = _bounds(name)
        if low is not None:
            value = max(value, broker.value_of(low))
        values[name] = value if high is None else min(value, broker.value_of(high))
    return values


def validate_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises InvalidConfigError, in Kafka's words, unless a group may have these settings."""
    for name in overrides:
        if name not in GROUP_TABLE:
            raise InvalidConfigError(f"Unknown group config name: {name}")
    values = {name: _parse(name, text) for name, text in overrides.items()}
    for name, value in values.items():
        low, high = _bounds(name)
        if low is not None and value < broker.value_of(low):
            raise InvalidConfigError(f"{name} must be greater than or equal to {low}")
        if high is not None and value > broker.value_of(high):
            raise InvalidConfigError(f"{name} must be less than or equal to {high}")
    every = {name: values.get(name, group_value_from_broker(name, broker)) for name in GROUP_TABLE}
    for kind in _KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if every[session] <= every[heartbeat]:
            raise InvalidConfigError(f"{session} must be greater than {heartbeat}")


def _parse(name: str, text: str) -> Any:
    try:
        value = GROUP_TABLE[name].parse(text)
    except (InvalidValueError, UnacceptableListError) as error:
        raise InvalidConfigError(str(error)) from None
    if name == AUTO_OFFSET_RESET and not _is_reset(value):
        raise InvalidConfigError(
            f"Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. The "
            "value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    return value


def _is_reset(value: str) -> bool:
    if value in ("earliest", "latest"):
        return True
    kind, _, duration = value.partition(":")
    return kind == "by_duration" and _DURATION.fullmatch(duration) is not None


def _bounds(name: str) -> tuple[str | None, str | None]:
    """The broker settings that a group's setting must lie between."""
    kind, _, rest = name.partition(".")
    low, high = f"group.{kind}.min.{rest}", _OTHER_BOUNDS.get(name, f"group.{kind}.max.{rest}")
    return (low if low in BROKER_TABLE else None), (high if high in BROKER_TABLE else None)
