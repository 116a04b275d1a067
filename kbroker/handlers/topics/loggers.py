"""The levels of this process's loggers, as settings of resources of type BROKER_LOGGER (KIP-412).

`root`, `kbroker` and its areas (`kbroker.storage`, ...).  A level is changed by SET and given back to the logger above
by DELETE; it lasts until the process ends.  The audit log is `kbroker.authorizer`, and `kafka.authorizer.logger` as
people know it of Kafka, which no list shows.  Names of levels are Kafka's: WARNING is WARN, CRITICAL is FATAL,
and TRACE shows no more than DEBUG does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from kbroker.errors import InvalidConfigError, InvalidRequestError
from kbroker.handlers.topics.config_entries import ConfigEntry, ConfigSource
from kbroker.security.acl import audit

ROOT = "root"
OWN = "kbroker"
LEVELS = {"DEBUG": 10, "ERROR": 40, "FATAL": 50, "INFO": 20, "TRACE": 5, "WARN": 30}
UNKNOWN_TYPE = 0
_OWN_NAMES = {audit.KAFKAS_NAME: audit.logger.name}

logger = logging.getLogger("kbroker.handlers")


def names() -> Iterator[str]:
    """Every logger, the root first."""
    yield ROOT
    yield OWN
    yield from sorted(name for name in logging.root.manager.loggerDict if name.startswith(f"{OWN}."))


def entries() -> list[ConfigEntry]:
    """Every logger with its level, as DescribeConfigs shows them."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [ConfigEntry(name, level_of(name), source, False, False, UNKNOWN_TYPE, "", (), source) for name in names()]


def level_of(name: str) -> str:
    """The level in force, by Kafka's name."""
    number = _logger(name).getEffectiveLevel()
    return min(LEVELS, key=lambda level: abs(LEVELS[level] - max(number, LEVELS["TRACE"])))


def change(settings: Iterable[tuple[str, str | None]], validate_only: bool) -> None:
    """Set levels; None gives a logger back to the one above.  All or, with an error, none.

    Raises InvalidConfigError, InvalidRequestError."""
    wanted = {_OWN_NAMES.get(name, name): level for name, level in settings}
    known = set(names())
    for name, level in wanted.items():
        if name not in known:
            raise InvalidConfigError(f"Logger {name} does not exist!")
        if level is None and name == ROOT:
            raise InvalidRequestError("Removing the log level of the root logger is not allowed")
        if level is not None and level not in LEVELS:
            raise InvalidConfigError(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}"
            )
    if validate_only:
        return
    for name, level in wanted.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])
        logger.info("changed the level of logger %s to %s", name, level or "that of the logger above")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
