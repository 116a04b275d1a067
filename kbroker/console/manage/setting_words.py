"""Values of settings as a person says them: `3600000` milliseconds are 1 h, `1073741824` bytes 1 GiB.

A value is given in the largest unit that it is a whole number of, so that two values that differ never read alike.
"""

from __future__ import annotations

_TIMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
_SCALES = {"ms": (1, _TIMES), "seconds": (1_000, _TIMES), "minutes": (60_000, _TIMES), "hours": (3_600_000, _TIMES)}
_NO_LIMIT = ("-1", str((1 << 63) - 1))
_UNLIMITED = ("retention.ms", "retention.bytes", "retention.minutes", "retention.hours")


def in_words(name: str, value: str | None) -> str:
    """A setting's value; None: it has none."""
    if value is None:
        return "not set"
    if value == "":
        return "empty"
    if value in _NO_LIMIT and name.endswith(_UNLIMITED):
        return "no limit"
    factor, units = (1, _SIZES) if name.endswith("bytes") else _SCALES.get(name.rpartition(".")[2], (0, ()))
    if not units or not (value.isascii() and value.isdigit()):
        return value
    number = int(value) * factor
    for unit, size in units if number else units[-1:]:
        if number % size == 0:
            return f"{number // size:,} {unit}"
    return value
