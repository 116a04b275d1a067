"""Types of settings: text to value as Kafka's `ConfigDef.parseType` reads it, and value to text as it prints it.

Text is trimmed first.  An INT, LONG or SHORT is an optional sign and decimal digits within the Java type's range; a
BOOLEAN is `true` or `false` in any case; a LIST is split at commas, blanks around them dropped, and the empty text is
the empty list.  Reasons are worded as Kafka words them, because they reach clients in CreateTopics answers.
"""

from __future__ import annotations

import re
from enum import Enum


class ConfigType(Enum):
    """The types of Kafka's `ConfigDef.Type`; the value is the code that DescribeConfigs answers carry."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class InvalidValueError(ValueError):
    """A text that is no value of its setting.  Its message is Kafka's."""

    def __init__(self, key: str, value: object, reason: str) -> None:
        shown = render_value(value) if isinstance(value, float) else value
        super().__init__(f"Invalid value {shown} for configuration {key}: {reason}")
        self.key = key
        self.reason = reason


class UnacceptableListError(ValueError):
    """A list that breaks a rule about lists; Kafka words these without the value."""


INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# What String.trim takes off, and what is blank in Java's regular expressions.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
_BLANKS = " \t\n\v\f\r"
# Compiled when first needed: a start without doubles in its file need not pay for it.
_DOUBLE = r"([+-]?)(NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"


def parse_value(key: str, kind: ConfigType, text: str) -> object:
    """The value that `text` stands for.  Raises `InvalidValueError`."""
    trimmed = text.strip(_TRIMMED)
    if kind in INTEGER_BITS:
        return _parse_integer(key, kind, text, trimmed)
    if kind is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise InvalidValueError(key, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind is ConfigType.DOUBLE:
        match = re.fullmatch(_DOUBLE, trimmed)
        if match is None:
            raise InvalidValueError(key, text, "Not a number of type DOUBLE")
        return float(match[1] + match[2])
    if kind is ConfigType.LIST:
        return [item.strip(_BLANKS) for item in trimmed.split(",")] if trimmed else []
    return trimmed


def _parse_integer(key: str, kind: ConfigType, text: str, trimmed: str) -> int:
    # More digits than any Java type has are refused before int() spends time on them.
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    if digits.isascii() and digits.isdigit() and len(digits) <= 64:
        value = int(trimmed)
        limit = 1 << (INTEGER_BITS[kind] - 1)
        if -limit <= value < limit:
            return value
    raise InvalidValueError(key, text, f"Not a number of type {kind.name}")


def render_value(value: object) -> str | None:
    """`value` as Kafka's `ConfigDef.convertToString` prints it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _render_double(value)
    return str(value)


def _render_double(value: float) -> str:
    # Java's Double.toString: plain digits between 1e-3 and 1e7, else a mantissa with a point and E without a plus.
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value!r}" if "e" not in repr(value) else f"{value:f}".rstrip("0")
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        sign, digits, exponent = _scientific(value)
        mantissa = sign + digits
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str, str]:
    """Sign, shortest mantissa and exponent of a number that Python prints without one."""
    from decimal import Decimal

    negative, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    mantissa = text[0] + "." + (text[1:] or "0")
    return "-" if negative else "", mantissa, str(int(exponent) + len(text) - 1)
