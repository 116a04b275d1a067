"""Checks that no single setting's row can express: those of settings in combination, and ranges with an exception.

The same rules hold at start and for changes at run time; the reasons are Kafka's words (`KafkaConfig.validateValues`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Get = Callable[[str], Any]
"""Gives the values of settings by name."""

MIB = 1 << 20
UNLIMITED = -1
AS_A_WHOLE = -2
METHODS = ("basic", "bearer", "none")
"""Of `kbroker.metrics.authentication`."""

_AT_LEAST = (("log.roll.ms", 1), ("log.roll.jitter.ms", 0))


def contradiction(get: Get) -> tuple[str, str] | None:
    """The first setting that does not go with the rest, and why; None when all fit.  `get` gives values by name."""
    for name, low in _AT_LEAST:
        value = get(name)
        if value is not None and value < low:
            return name, f"{name} must be greater than or equal to {low}"
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = get(name)
        if value is not None:
            if value == 0:
                return name, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            break
    # The map of one thread; without threads there is none.
    if get("log.cleaner.dedupe.buffer.size") // max(1, get("log.cleaner.threads")) <= MIB:
        return (
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        )
    cordoned = get("cordoned.log.dirs")
    if "*" in cordoned and len(cordoned) > 1:
        return "cordoned.log.dirs", "When cordoned.log.dirs is set to *, it must not contain other values"
    missing = [name for name in cordoned if name != "*" and name not in (get("log.dirs") or get("log.dir") or ())]
    if missing:
        return (
            "cordoned.log.dirs",
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {','.join(missing)}",
        )
    if get("max.connections.per.ip") == 0 and not get("max.connections.per.ip.overrides").strip():
        return (
            "max.connections.per.ip",
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        )
    return _viewers(get)


def _viewers(get: Get) -> tuple[str, str] | None:
    """How those who look at the metrics listener prove who they are."""
    name, methods = "kbroker.metrics.authentication", get("kbroker.metrics.authentication")
    for method in methods:
        if method not in METHODS:
            return name, f"{method} is none of {', '.join(METHODS)}"
    if "none" in methods and len(methods) > 1:
        return name, "none does not go with others"
    if "bearer" in methods and not get("kbroker.metrics.bearer.token"):
        return name, "bearer takes kbroker.metrics.bearer.token"
    kind, colon, user = get("kbroker.metrics.bearer.principal").partition(":")
    if not (kind and colon and user):
        return "kbroker.metrics.bearer.principal", "must be a kind and a name, such as User:metrics"
    return None


def local_retention_error(get: Get) -> str | None:
    """Kafka's rule for changes of what is kept locally: no more than is kept at all."""
    for local, whole in (
        ("log.local.retention.ms", "log.retention.ms"),
        ("log.local.retention.bytes", "log.retention.bytes"),
    ):
        kept = get(local)
        limit = retention_ms(get) if whole == "log.retention.ms" else get(whole)
        if kept == AS_A_WHOLE or limit == UNLIMITED:
            continue
        if kept == UNLIMITED:
            return f"{_invalid(local, kept)}Value must not be -1 as {whole} value is set as {limit}."
        if kept > limit:
            return f"{_invalid(local, kept)}Value must not be more than property: {whole} value."
    return None


def _invalid(name: str, value: int) -> str:
    return f"Invalid value {value} for configuration {name}: "


def retention_ms(get: Get) -> int:
    """How long topics without a setting of their own keep records; -1 without limit."""
    for name, unit in (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)):
        value = get(name)
        if value is not None:
            return UNLIMITED if value < 0 else int(value) * unit
    return UNLIMITED
