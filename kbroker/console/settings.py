"""Settings of the broker: values, where they come from, what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.config.origin import origin_in
from kbroker.console.parameters import PageOf, keys_of, page_of, view_of
from kbroker.handlers.topics.config_entries import ConfigSource, broker_entries
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters, View
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.handlers.topics.config_entries import ConfigEntry

SHOWN = ("all", "changed")

_SOURCES: Mapping[int, str] = {
    ConfigSource.DYNAMIC_BROKER: "set at run time, this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "set at run time, all brokers",
    ConfigSource.STATIC_BROKER: "set at the start",
    ConfigSource.DEFAULT: "default",
}


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting.  `value` is None where there is none, or where it is a secret (`is_sensitive`)."""

    name: str
    value: str | None
    default: str | None
    source: str
    origin: str
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    documentation: str


_KEYS: Mapping[str, Key[SettingLine]] = keys_of("name", "source")


async def settings(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/settings?q=&show=&sort=&start=&count="""
    view = view_of(parameters, _KEYS)
    only_changed = parameters.choice("show", SHOWN) == "changed"
    parts.require_cluster(Operation.DESCRIBE_CONFIGS)
    services = parts.services
    return partial(_page, broker_entries(services.config, services.node_id), only_changed, view)


def _page(entries: Sequence[ConfigEntry], only_changed: bool, view: View) -> PageOf[SettingLine]:
    lines = [_line(entry) for entry in entries if not (only_changed and entry.is_default)]
    return page_of(lines, view, _KEYS, lambda line: f"{line.name} {line.documentation}")


def _line(entry: ConfigEntry) -> SettingLine:
    defaults = [each.value for each in entry.synonyms if each.source is ConfigSource.DEFAULT]
    return SettingLine(
        entry.name,
        None if entry.sensitive else entry.value,
        defaults[0] if defaults and not entry.sensitive else None,
        _SOURCES.get(entry.source, entry.source.name.lower()),
        origin_in(entry.doc) or "",
        entry.is_default,
        entry.sensitive,
        entry.read_only,
        entry.doc,
    )
