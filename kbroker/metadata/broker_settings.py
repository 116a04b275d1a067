"""Settings of brokers that are changed while they run (KIP-226): checked, stored, and followed by the topics.

Two sets lie over the static settings: those for all brokers (kept under the empty name) and those of this one (under
its node id).  Best first: this broker's, all brokers', static, default.  A setting stored by an earlier version that is
no longer valid is left out, with a warning.

What can be changed are the settings that give topics their defaults, such as `log.retention.ms` or `message.max.bytes`:
logs without a setting of their own follow at once.  Everything else is read at start, and a request to change it is
refused with words that say so; stored and not acted on, it would only look as if it had been changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, ConfigRow, ConfigType, broker_config_rows, topic_config_rows
from kbroker.errors import InvalidRequestError

if TYPE_CHECKING:
    from kbroker.metadata.store import MetadataStore

logger = logging.getLogger("kbroker.metadata")

ALL_BROKERS = ""
PER_BROKER = "broker"


class BrokerSettings:
    """The only writer of broker settings on this node.  `config`: what is in force now, replaced by each change."""

    __slots__ = ("_followers", "_node", "_own", "_static", "_store", "config")

    def __init__(self, static: BrokerConfig, store: MetadataStore, node_id: int) -> None:
        self._static = static
        self._store = store
        self._node = str(node_id)
        self._own: dict[str, dict[str, str]] = store.broker_configs()
        self._followers: list[Callable[[BrokerConfig], None]] = []
        self.config = self._merged()

    def subscribe(self, follower: Callable[[BrokerConfig], None]) -> None:
        """Call `follower(config)` after every change."""
        self._followers.append(follower)

    def own(self, broker: str) -> Mapping[str, str]:
        """What was set for one broker (its node id) or for all of them (`ALL_BROKERS`)."""
        return self._own.get(broker, {})

    @staticmethod
    def is_list(name: str) -> bool:
        """Whether the setting's value is a list."""
        row = _row(name)
        return row is not None and row.type is ConfigType.LIST

    def replace(self, broker: str, settings: Mapping[str, str], validate_only: bool = False) -> None:
        """Make `settings` all that is set for a broker, durable and in force when this returns.

        InvalidRequestError, with the reason, when one of those that differ cannot be changed.
        """
        before = self.own(broker)
        self._check({name: text for name, text in settings.items() if before.get(name) != text}, broker)
        if validate_only or settings == before:
            return
        self._store.alter_broker_config(broker, settings)
        self._own[broker] = dict(settings)
        self.config = self._merged()
        logger.info("changed the settings of %s to %s", f"broker {broker}" if broker else "all brokers", dict(settings))
        for follower in self._followers:
            follower(self.config)

    @staticmethod
    def _check(changed: Mapping[str, str], broker: str) -> None:
        rows = {name: _row(name) for name in changed}
        unknown = [name for name, row in rows.items() if row is None]
        if unknown:
            raise InvalidRequestError(f"Unknown broker settings: {_listed(unknown)}")
        known = [row for row in rows.values() if row is not None]
        fixed = [row.name for row in known if row.read_only]
        if fixed:
            raise InvalidRequestError(f"Cannot update these configs dynamically: {_listed(fixed)}")
        if broker == ALL_BROKERS:
            single = [row.name for row in known if row.dynamic == PER_BROKER]
            if single:
                raise InvalidRequestError(
                    "Cannot update these configs at default cluster level, broker id must be specified: "
                    + _listed(single)
                )
        at_start = [row.name for row in known if row.name not in _LIVE]
        if at_start:
            raise InvalidRequestError(
                "kbroker reads these settings at start only: set them in server.properties and restart it: "
                + _listed(at_start)
            )
        for row in known:
            try:
                row.parse(changed[row.name])
            except ValueError as error:
                raise InvalidRequestError(str(error)) from None

    def _merged(self) -> BrokerConfig:
        return self._static.with_dynamic(self._parsed(ALL_BROKERS), self._parsed(self._node))

    def _parsed(self, broker: str) -> dict[str, object]:
        values = {}
        for name, text in self.own(broker).items():
            row = _row(name)
            try:
                if row is None or name not in _LIVE:
                    raise ValueError("it cannot be changed at run time")
                values[name] = row.parse(text)
            except ValueError as error:
                logger.warning("ignoring the stored setting %s=%s: %s", name, text, error)
        return values


def _row(name: str) -> ConfigRow | None:
    return _ROWS.get(name)


def _listed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


_ROWS: Mapping[str, ConfigRow] = {row.name: row for row in broker_config_rows()}
_LIVE: frozenset[str] = frozenset(
    name for row in topic_config_rows() for name in row.synonyms if not _ROWS[name].read_only
)
