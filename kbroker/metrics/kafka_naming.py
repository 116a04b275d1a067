"""Names for what JMX's beans say, by rules as JMX exporter has them: a naming is a function of a bean.

A rule is what stands in an exporter's file: a pattern over `domain<type=…, name=…, key=value><>attribute`, the name of
the series with `$1` and so on for the pattern's groups, and its labels.  The first rule that matches names a value; one
that none matches is not shown.  Without rules (`RAW`) a series has the domain, the type and the attribute as its name,
and all other properties as labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbroker.metrics.kafka_beans import Said, said
from kbroker.metrics.kafka_rows import Found
from kbroker.metrics.recent_rates import RecentRates

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Properties with few values, which rules may name; of others a rule sees their place alone.
NAMED = frozenset({"request", "delayedOperation", "listener", "networkProcessor", "clientId"})
_PLACE = "\0{}\0"
_GROUP = re.compile(r"\$(\d+)")
_UNFIT = re.compile(r"[^a-zA-Z0-9:]+")


class Rule(NamedTuple):
    """See the module."""

    pattern: str
    name: str
    labels: Mapping[str, str] = {}


class Shape(NamedTuple):
    """A series' name; of each label the name and its value, or the property that has it."""

    name: str
    labels: tuple[tuple[str, str, str], ...]


class Naming:
    """`rules`: None for the exporter's names without any.  `is_lower`: names of series and labels are put in lower
    case.  `title`: whose names they are."""

    def __init__(self, title: str, rules: tuple[Rule, ...] | None, *, is_lower: bool, suffix: str = "") -> None:
        self.title = title
        self._rules = None if rules is None else [(re.compile(f"^.*(?:{rule.pattern}).*$"), rule) for rule in rules]
        self._is_lower = is_lower
        self._suffix = suffix
        self._shapes: dict[tuple[object, ...], Shape | None] = {}

    def series(self, one: Said) -> tuple[str, dict[str, str]] | None:
        """Name and labels; None where it is not shown."""
        bean = one.bean
        seen = tuple((key, text if key in NAMED else "") for key, text in one.properties)
        key = (bean.family.name, one.attribute, bean.name, seen)
        if key not in self._shapes:
            self._shapes[key] = self._shape(one)
        shape = self._shapes[key]
        if shape is None:
            return None
        values = dict(one.properties)
        return shape.name, {name: values[source] if source else text for name, text, source in shape.labels}

    def examples(self, some: Iterable[Said]) -> list[str]:
        """How it names these, as a client writes a series."""
        found = []
        for one in some:
            series = self.series(one)
            if series is not None:
                labels = ",".join(f'{name}="{text}"' for name, text in series[1].items())
                found.append(f"{series[0]}{{{labels}}}" if labels else series[0])
        return found

    def _shape(self, one: Said) -> Shape | None:
        bean = one.bean
        properties = [("name", bean.name)] if bean.name else []
        properties += [(key, text if key in NAMED else _PLACE.format(key)) for key, text in one.properties]
        if self._rules is None:
            suffix = self._suffix if one.attribute == "Count" else ""
            return self._made(f"{bean.domain}_{bean.kind}_{one.attribute}{suffix}", dict(properties))
        inside = ", ".join(f"{key}={text}" for key, text in [("type", bean.kind), *properties])
        for pattern, rule in self._rules:
            found = pattern.match(f"{bean.domain}<{inside}><>{one.attribute}")
            if found is not None:
                labels = {_filled(name, found): _filled(text, found) for name, text in rule.labels.items()}
                return self._made(_filled(rule.name, found), labels)
        return None

    def _made(self, name: str, labels: Mapping[str, str]) -> Shape:
        made = []
        for label, text in labels.items():
            source = text.strip("\0") if text.startswith("\0") else ""
            made.append((self._fit(label), text, source))
        return Shape(self._fit(name), tuple(made))

    def _fit(self, name: str) -> str:
        fit = _UNFIT.sub("_", name)
        return fit.lower() if self._is_lower else fit


def _filled(text: str, found: re.Match[str]) -> str:
    return _GROUP.sub(lambda group: found.group(int(group[1])) or "", text)


def named_families(naming: Naming, values: Found, rates: RecentRates) -> Iterator[Metric]:
    """All families under a naming; of two values with the same name and labels the first."""
    from prometheus_client.core import UnknownMetricFamily

    made: dict[str, Metric] = {}
    taken: set[tuple[str, tuple[str, ...]]] = set()
    for one in said(values, rates):
        series = naming.series(one)
        if series is None:
            continue
        name, labels = series
        place = name, tuple(labels.values())
        if place in taken:
            continue
        taken.add(place)
        if name not in made:
            made[name] = UnknownMetricFamily(name, f"{one.attribute} of {one.bean.kind} {one.bean.name}".rstrip() + ".")
        made[name].add_sample(name, labels, one.value)
    yield from made.values()
