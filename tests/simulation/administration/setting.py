"""What a setting may be at a moment: each value from the moment that it is asked for until the next one is in force."""

from __future__ import annotations

from dataclasses import dataclass, field

FOREVER = float("inf")


@dataclass(slots=True, eq=False)
class _Value:
    value: int
    since: float
    until: float = FOREVER


@dataclass(slots=True, eq=False)
class Setting:
    """The values of one setting; `lag` is how long brokers may take to learn of one that was acknowledged."""

    first: int
    lag: float = 0.0
    _values: list[_Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._values.append(_Value(self.first, -FOREVER))

    @property
    def last(self) -> int:
        """The value that was asked for last."""
        return self._values[-1].value

    def asked(self, value: int, now: float) -> None:
        """A change is about to be asked for."""
        self._values.append(_Value(value, now))

    def acknowledged(self, now: float) -> None:
        """The value that was asked for last holds, soon everywhere."""
        for each in self._values[:-1]:
            each.until = min(each.until, now + self.lag)

    def between(self, since: float, until: float) -> list[int]:
        """What it may have been for a request that was sent and answered then."""
        return [each.value for each in self._values if each.since <= until and each.until >= since]
