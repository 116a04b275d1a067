"""What a data source does with each option: one table for reading and one for writing, which checks and docs share.

An option is taken with the meaning that it has in Spark's Kafka connector, taken without an effect because it is about
something that only Java's clients or Spark's JVM have, or refused because leaving it out of account would change what
is read, written or trusted.  An option that no table has is an error where it looks like a misspelling; others, of
Spark or of other sources, have no effect with Spark's connector either, and the log names them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from kbroker.replay.sources.option_values import OptionValues
from kbroker.replay.sources.security_options import security_names

logger = logging.getLogger("kbroker.replay")


class Effect(Enum):
    """What an option does here."""

    TAKEN = "taken"
    NONE = "without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Option:
    """`text` is the meaning of one that is taken, else the reason; `default` is for the docs, and may be empty."""

    name: str
    text: str
    default: str = ""
    effect: Effect = Effect.TAKEN


def taken(name: str, default: str, text: str) -> Option:
    """An option with the meaning that `text` gives."""
    return Option(name, text, default)


def idle(text: str, *names: str) -> Iterator[Option]:
    """Options without an effect, for one reason."""
    return (Option(name, text, effect=Effect.NONE) for name in names)


def refused(name: str, text: str) -> Option:
    """An option that cannot be had here."""
    return Option(name, text, effect=Effect.REFUSED)


class OptionTable:
    """All options of one format in one direction."""

    def __init__(self, where: str, options: Iterable[Option]) -> None:
        self.where = where
        self.options = tuple(options)
        self.by_name = {option.name.lower(): option for option in self.options}
        assert len(self.by_name) == len(self.options), "an option stands twice"
        self._named: set[str] = set()

    def check(self, values: OptionValues) -> None:
        """OptionError for options that are refused or misspelt; those without effect are named in the log, once."""
        values.refuse({option.name: option.text for option in self._with(Effect.REFUSED)})
        taken_names = [option.name for option in self._with(Effect.TAKEN)]
        known = (*self.by_name, *security_names(values))
        for name in values.foreign(known, taken_names, self.where):
            self.name_idle(name, f"{self.where} has no such option")
        for option in self._with(Effect.NONE):
            if values.has(option.name):
                self.name_idle(option.name, option.text)

    def name_idle(self, name: str, reason: str) -> None:
        """Says in the log, once for this process, that an option has no effect."""
        if name not in self._named:
            self._named.add(name)
            logger.warning("option %s has no effect: %s", name, reason)

    def markdown(self) -> str:
        """The tables of docs/spark.md: what is taken, what has no effect, what is refused."""
        lines = ["| option | default | |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {row.default} | {row.text} |" for row in self._with(Effect.TAKEN)]
        for effect, title in ((Effect.NONE, "Taken without effect"), (Effect.REFUSED, "Refused")):
            lines += ["", f"| {title} | because |", "|---|---|"]
            reasons: dict[str, list[str]] = {}
            for row in self._with(effect):
                reasons.setdefault(row.text, []).append(f"`{row.name}`")
            lines += [f"| {', '.join(names)} | {reason} |" for reason, names in reasons.items()]
        return "\n".join(lines) + "\n"

    def _with(self, effect: Effect) -> list[Option]:
        return [option for option in self.options if option.effect is effect]
