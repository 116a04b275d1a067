"""Settings of a subscription to client metrics (KIP-714): validation with Kafka's texts, and their values.

Patterns are Java's, as in Kafka, and match in bounded time for any name of a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbroker.config.table import CLIENT_METRICS_TABLE
from kbroker.config.value import InvalidValueError, UnacceptableListError
from kbroker.errors import InvalidConfigError, InvalidRequestError
from kbroker.java_patterns import JavaPattern, compile_java_pattern

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""What of a client a subscription may ask for."""


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """A subscription: the prefixes of metrics, how often they are pushed, and the patterns that a client must fit."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, JavaPattern]


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfigError or InvalidRequestError, in Kafka's words, unless a subscription may be set so."""
    client_metrics_config(overrides)


def client_metrics_config(overrides: Mapping[str, str]) -> ClientMetricsConfig:
    """The values of a subscription's settings.  Raises as `validate_client_metrics` does."""
    values: dict[str, Any] = {name: row.default for name, row in CLIENT_METRICS_TABLE.items()}
    for name, text in overrides.items():
        row = CLIENT_METRICS_TABLE.get(name)
        if row is None:
            raise InvalidRequestError(f"Unknown client metrics configuration: {name}")
        try:
            values[name] = row.parse(text)
        except (InvalidValueError, UnacceptableListError) as error:
            raise InvalidConfigError(str(error)) from None
    interval_ms = values["interval.ms"]
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise InvalidRequestError(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {MIN_INTERVAL_MS} and "
            f"{MAX_INTERVAL_MS} (1 hour)"
        )
    match = _patterns(values["match"])
    return ClientMetricsConfig(tuple(dict.fromkeys(values["metrics"])), interval_ms, match)


def _patterns(texts: list[str]) -> dict[str, JavaPattern]:
    """The compiled patterns by what they are held against."""
    found = {}
    for text in texts:
        # Java's split leaves out what is empty at the end: `client_id=` is no pattern, and `client_id=a=` is one.
        name, *patterns = text.rstrip("=").split("=")
        try:
            if len(patterns) != 1 or name.strip() not in MATCHED:
                raise ValueError(text)
            found[name.strip()] = compile_java_pattern(patterns[0].strip())
        except ValueError:
            raise InvalidConfigError(f"Illegal client matching pattern: {text}") from None
    return found
