"""One row per setting: name, type, default, scope, check, status and meaning.

The tables are texts in the `*_rows` modules, one row per line, columns between `|`:

    name, type, default (`null` is no value), dynamic scope (empty: read at start only; `broker`; `cluster`) or, for a
    topic or a group, the broker settings behind it, check (`kbroker.config.check`), status, meaning

Status: `+` acted on; `-` known to Kafka, but without effect here, so a value gives a warning; `x` asks for something
that this broker cannot do; `!` asks for protection that it does not have.  The broker refuses to start where an `x` or
`!` setting has anything but its default.  A following `i`: internal to Kafka.  Then, after a blank, why
(`kbroker.config.reasons`); `!` needs none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kbroker.config.check import check_value
from kbroker.config.classes import names_classes, reason_against
from kbroker.config.reasons import REASONS, SECURITY
from kbroker.config.value import ConfigType, parse_value

IMPLEMENTED = "+"
REFUSED = "x"
PROTECTS = "!"


class ConfigRow(NamedTuple):
    """A setting as Kafka names it."""

    name: str
    type: ConfigType
    default: object
    scope: str
    """`topic`, `broker`, `group` or `client metrics`."""
    dynamic: str
    check: str
    status: str
    internal: bool
    doc: str
    synonyms: tuple[str, ...]
    """Broker settings that give a topic's or a group's setting its default, best first."""
    reason: str
    """Why the broker does not act on it, as half a sentence; empty where it does."""

    @property
    def implemented(self) -> bool:
        """Whether the broker acts on the setting."""
        return self.status == IMPLEMENTED

    @property
    def security(self) -> bool:
        """Whether the setting would protect something, so that a broker that lacks it does not start with it."""
        return self.status == PROTECTS

    @property
    def refused(self) -> bool:
        """Whether a broker does not start where the setting asks for something: see `asks`."""
        return self.status in (REFUSED, PROTECTS)

    def asks(self, value: object) -> bool:
        """Whether `value` asks for anything beyond what is there without the setting."""
        if value == self.default or (value in ("", []) and self.status == REFUSED):
            return False
        return not names_classes(self.name) or bool(reason_against(self.name, value))

    def why_not(self, value: object) -> str:
        """Why the broker cannot do what `value` asks for, as half a sentence."""
        return reason_against(self.name, value) if names_classes(self.name) else self.reason

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def read_only(self) -> bool:
        """Whether Kafka would refuse to change it on a running broker."""
        return self.scope == "broker" and not self.dynamic

    def parse(self, text: str) -> Any:
        """The checked value of `text`.  Raises `InvalidValueError` or `UnacceptableListError`."""
        value = parse_value(self.name, self.type, text)
        check_value(self.name, self.check, value)
        return value


def parse_rows(table: str, scope: str) -> dict[str, ConfigRow]:
    """The rows of one table by name, in its order."""
    rows: dict[str, ConfigRow] = {}
    # A row goes on in lines that are set in; words are not joined there, what comes after a bar needs no space.
    whole = table.strip().replace("|\n    ", "|").replace("\n    ", " ")
    for line in whole.split("\n"):
        name, kind, default, middle, check, status, doc = line.split("|")
        config_type = ConfigType[kind]
        has_synonyms = scope != "broker"
        mark, _, why = status.partition(" ")
        rows[name] = ConfigRow(
            name=name,
            type=config_type,
            default=_parse_default(name, config_type, default),
            scope=scope,
            dynamic="" if has_synonyms else middle,
            check=check,
            status=mark[0],
            internal=mark.endswith("i"),
            doc=doc,
            synonyms=tuple(middle.split(">")) if has_synonyms and middle else (),
            reason="" if mark[0] == IMPLEMENTED else REASONS[why or SECURITY],
        )
    return rows


def _parse_default(name: str, kind: ConfigType, text: str) -> object:
    if text == "null":
        return None
    return float(text) if kind is ConfigType.DOUBLE else parse_value(name, kind, text)
