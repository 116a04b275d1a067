"""What a client is asked to push: a pure function of the client and of the settings of all subscriptions.

A subscription whose patterns all fit the client counts: the client pushes the metrics of all of them, at the shortest
interval.  A prefix `*` means every metric.  Where none fits, it pushes nothing and asks again after the default
interval.

`subscription_id` changes with what is asked for, so that a client that pushes under an older id gets
UNKNOWN_SUBSCRIPTION_ID, and asks again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kbroker.config import ClientMetricsConfig, client_metrics_config
from kbroker.errors import KafkaError
from kbroker.java_patterns import JavaPattern, PatternTimeoutError

logger = logging.getLogger("kbroker.telemetry")

DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """What subscriptions can tell clients apart by."""

    instance_id: str
    client_id: str
    software_name: str = UNKNOWN
    software_version: str = UNKNOWN
    address: str = ""
    port: int = 0

    def parts(self) -> Mapping[str, str]:
        """What a pattern is held against, by its name in settings."""
        return {
            "client_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one client is asked to push; nothing where `metrics` is empty."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def readable(overrides: Iterable[Mapping[str, str]]) -> list[ClientMetricsConfig]:
    """The settings of subscriptions; one that cannot be read any more is left out."""
    found = []
    for settings in overrides:
        with suppress(KafkaError):
            found.append(client_metrics_config(settings))
    return found


def subscription_for(client: ClientIdentity, configs: Iterable[ClientMetricsConfig]) -> Subscription:
    """What a client is asked to push."""
    parts = client.parts()
    metrics: set[str] = set()
    interval_ms = None
    for config in configs:
        if not _matches(parts, config.match):
            continue
        metrics.update(config.metrics)
        interval_ms = config.interval_ms if interval_ms is None else min(interval_ms, config.interval_ms)
    wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    interval_ms = DEFAULT_INTERVAL_MS if interval_ms is None else interval_ms
    number = zlib.crc32(f"{client.instance_id}\n{interval_ms}\n{wanted}".encode())
    return Subscription(number - (1 << 32) if number >= 1 << 31 else number, wanted, interval_ms)


def _matches(parts: Mapping[str, str], patterns: Mapping[str, JavaPattern]) -> bool:
    """Whether each part of a client fits its pattern.  One that takes too long over a client's name does not fit it."""
    try:
        return all(pattern.fullmatch(parts[name]) for name, pattern in patterns.items())
    except PatternTimeoutError as error:
        logger.warning("a subscription to client metrics is left out for a client: %s", error)
        return False
