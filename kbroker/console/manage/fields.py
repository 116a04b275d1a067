"""The fields of an action, which a viewer has sent as JSON, within bounds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from kbroker.console.parameters import INT64_MAX, BadParameterError

MOST_ENTRIES = 10_000


class Fields:
    """Each reader raises BadParameterError."""

    def __init__(self, values: object, secret: str = "") -> None:
        """`secret` is a password, which is in no plan."""
        if not isinstance(values, dict) or len(values) > MOST_ENTRIES:
            raise BadParameterError("fields must be an object")
        self.values: Mapping[str, object] = values
        self.secret = secret

    def text(self, name: str, default: str | None = None) -> str:
        """Any text; without a default it must be there and not empty."""
        value = self.values.get(name)
        if value is None or value == "":
            if default is None:
                raise BadParameterError(f"{name} is missing")
            return default
        if not isinstance(value, str):
            raise BadParameterError(f"{name} must be a text")
        return value

    def optional(self, name: str) -> str | None:
        """A text, which may be empty; None where there is none."""
        return self.text(name, "") if self.values.get(name) is not None else None

    def number(self, name: str, default: int | None = None, low: int = 0, high: int = INT64_MAX) -> int:
        """A whole number from `low` to `high`, or a text of one."""
        value = self.values.get(name)
        if value is None or value == "":
            if default is None:
                raise BadParameterError(f"{name} is missing")
            return default
        return whole_number(name, value, low, high)

    def real(self, name: str) -> float | None:
        """A number that is not negative; None where there is none."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        try:
            found = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else -1.0
        except (ValueError, OverflowError):
            found = -1.0
        if not 0 <= found < float("inf"):
            raise BadParameterError(f"{name} must be a number that is not negative")
        return found

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of `choices`; the first where it is not there."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise BadParameterError(f"{name} must be one of {', '.join(choices)}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty where there is none."""
        value = self.values.get(name) or []
        if not isinstance(value, list) or len(value) > MOST_ENTRIES or not all(isinstance(each, str) for each in value):
            raise BadParameterError(f"{name} must be a list of texts")
        return value

    def rows(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self.values.get(name) or []
        if not isinstance(value, list) or len(value) > MOST_ENTRIES:
            raise BadParameterError(f"{name} must be a list of at most {MOST_ENTRIES} objects")
        return [Fields(each) for each in value]

    def settings(self, name: str) -> dict[str, str]:
        """Texts by their names; empty where there are none."""
        value = self.values.get(name) or {}
        if not isinstance(value, dict) or len(value) > MOST_ENTRIES:
            raise BadParameterError(f"{name} must be an object of texts")
        if not all(isinstance(each, str) for each in value.values()):
            raise BadParameterError(f"{name} must be an object of texts")
        return value

    def offsets(self, name: str) -> dict[int, int] | None:
        """Offsets by partition; None where there are none."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) > MOST_ENTRIES:
            raise BadParameterError(f"{name} must be an object of offsets by partition")
        return {
            whole_number("a partition", partition, 0, 1 << 31): whole_number("an offset", offset, 0, INT64_MAX)
            for partition, offset in value.items()
        }

    def data(self, name: str) -> bytes | None:
        """A text as UTF-8, or `{"base64": …}`; None where there is none."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, dict) and isinstance(value.get("base64"), str):
            try:
                return base64.b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError):
                raise BadParameterError(f"{name} is no base64") from None
        raise BadParameterError(f'{name} must be a text, or {{"base64": …}}')


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """A number, or a text of one.  BadParameterError."""
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        value = int(value) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadParameterError(f"{name} must be a whole number from {low} to {high}")
    return value
