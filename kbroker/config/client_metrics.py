"""Settings of a subscription to client metrics (KIP-714): validation with Kafka's texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kbroker.config.table import CLIENT_METRICS_TABLE
from kbroker.config.value import InvalidValueError
from kbroker.errors import InvalidConfigError, InvalidRequestError

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


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfigError or InvalidRequestError, in Kafka's words, unless a subscription may be set so."""
    for name, text in overrides.items():
        row = CLIENT_METRICS_TABLE.get(name)
        if row is None:
            raise InvalidRequestError(f"Unknown client metrics configuration: {name}")
        try:
            value = row.parse(text)
        except InvalidValueError as error:
            raise InvalidConfigError(str(error)) from None
        if name == "interval.ms" and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            raise InvalidRequestError(
                f"Invalid value {value} for interval.ms, interval must be between {MIN_INTERVAL_MS} and "
                f"{MAX_INTERVAL_MS} (1 hour)"
            )
        if name == "match":
            parse_match(value)


def parse_match(patterns: list[str]) -> dict[str, re.Pattern[str]]:
    """The patterns by what they are held against.  InvalidConfigError where one is wrong."""
    found = {}
    for text in patterns:
        name, equals, pattern = text.partition("=")
        try:
            if not equals or "=" in pattern or name.strip() not in MATCHED:
                raise ValueError(text)
            found[name.strip()] = re.compile(pattern.strip())
        except (ValueError, re.error):
            raise InvalidConfigError(f"Illegal client matching pattern: {text}") from None
    return found
