"""Options as Spark gives them, case-insensitive text, turned into values; errors name the option and what it takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

_TIME = re.compile(r"^\s*(\d+)\s*([a-z]*)\s*$")
MISSPELLING = 0.8
"""How alike (`difflib`) a name and one of ours are from which on the name is taken for a misspelling."""
OF_OTHERS = frozenset({"maxfilespertrigger", "maxbytespertrigger", "numpartitions", "path", "startingversion"})
"""Options of other sources of Spark's that are alike to ours."""
_UNIT_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(ValueError):
    """An option that is missing, contradicts another, or has a value that it cannot have."""


class OptionValues:
    """The options by lower-case name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name.lower() in self._values

    def names(self) -> tuple[str, ...]:
        """The names of all options, in lower case."""
        return tuple(self._values)

    def text(self, name: str, default: str | None = None) -> str | None:
        """The option's text."""
        return self._values.get(name.lower(), default)

    def required(self, name: str, why: str) -> str:
        """The option's text.  OptionError, with `why`, when it is missing or blank."""
        value = (self.text(name) or "").strip()
        if not value:
            raise OptionError(f"option {name} must be given: {why}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """The option as true or false.  OptionError for another word."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise OptionError(f"option {name} is true or false, not {value!r}")
        return value.strip().lower() == "true"

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """The option as a whole number.  OptionError below `least`."""
        value = self.text(name)
        if value is None:
            return default
        try:
            found = int(value)
        except ValueError:
            raise OptionError(f"option {name} is a whole number, not {value!r}") from None
        if found < least:
            raise OptionError(f"option {name} is at least {least}, not {found}")
        return found

    def count(self, name: str, default: int, *, least: int = 1) -> int:
        """The option as a whole number that has a default.  OptionError below `least`."""
        found = self.number(name, default, least=least)
        assert found is not None
        return found

    def time_ms(self, name: str, default_ms: int) -> int:
        """`500`, `500ms`, `30s`, `15m`, `1h` or `1d`; a number alone is milliseconds.  Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default_ms
        match = _TIME.match(value.lower())
        if match is None or match[2] not in _UNIT_MS:
            raise OptionError(f"option {name} is a time such as 500ms, 30s, 15m or 1h, not {value!r}")
        return int(match[1]) * _UNIT_MS[match[2]]

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """The option as one of `choices`, in lower case.  OptionError."""
        value = (self.text(name) or default).strip().lower()
        if value not in choices:
            raise OptionError(f"option {name} is one of {', '.join(choices)}, not {value!r}")
        return value

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Options that exist elsewhere and cannot be had here, each with the reason.  Raises OptionError."""
        for name, reason in reasons.items():
            if self.has(name):
                raise OptionError(f"option {name} is not supported: {reason}")

    def foreign(self, known: Iterable[str], taken: Iterable[str], where: str) -> list[str]:
        """The names that are none of `known`: options of Spark, of other sources or of Java's clients, which Spark's
        own connector ignores, too.  OptionError for one that is likely a misspelling of one of `taken`."""
        known_names = {name.lower() for name in known}
        taken_names = {name.lower(): name for name in taken}
        found = [name for name in self._values if name not in known_names]
        for name in found:
            near = [] if name in OF_OTHERS else difflib.get_close_matches(name, taken_names, 1, MISSPELLING)
            if near:
                options = ", ".join(sorted(taken_names.values()))
                raise OptionError(
                    f"{where} has no option {name}; did you mean {taken_names[near[0]]}?  Known: {options}"
                )
        return found
