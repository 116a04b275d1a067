"""Which quotas a description asks for: pure, with Kafka's rules and texts.

Each component names a type of entity, and says whether it has a certain name, the default, or any.  An entity matches
when it satisfies every component; a strict filter excludes entities with further types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbroker.errors import InvalidRequestError, UnsupportedVersionError
from kbroker.metadata.image import QuotaEntity
from kbroker.quotas.rules import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

_FEWER = (CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE, PRODUCER_BYTE_RATE)
_ALL_FOUR = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE)


class Component(NamedTuple):
    """One component of a filter, as the request has it."""

    kind: str
    match_type: int
    match: str | None


def in_order(values: Mapping[str, float]) -> list[tuple[str, float]]:
    """The quotas of one entity in the order in which Kafka 4.3 names them: its hash table is larger for all four.

    Where `request_percentage` and `producer_byte_rate` were set in two requests, Kafka begins with the one that was set
    first; kbroker always with the former.
    """
    order = _ALL_FOUR if len(values) == len(_ALL_FOUR) else _FEWER
    return sorted(values.items(), key=lambda each: order.index(each[0]) if each[0] in order else len(order))


def describe(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], components: Iterable[Component], strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that match, with their quotas.  InvalidRequestError or UnsupportedVersionError, with Kafka's text,
    for what is no filter."""
    wanted: dict[str, Component] = {}
    for component in components:
        _check(component)
        if component.kind in wanted:
            raise InvalidRequestError(f"Entity type {component.kind} cannot appear more than once in the filter.")
        wanted[component.kind] = component
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    if not wanted:
        return [] if strict else list(quotas.items())
    return [(entity, values) for entity, values in quotas.items() if _matches(entity, wanted, strict)]


def _check(component: Component) -> None:
    kind, match_type, match = component
    if kind == "":
        raise InvalidRequestError("Invalid empty entity type.")
    if match_type == EXACT and match is None:
        raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type == DEFAULT and match is not None:
        raise InvalidRequestError("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
    if match_type == SPECIFIED and match is not None:
        raise InvalidRequestError("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
    if match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise InvalidRequestError(f"Unknown match type {match_type}")
    if kind not in (USER, CLIENT_ID, IP):
        raise UnsupportedVersionError(f"Unsupported entity type {kind}")


def _matches(entity: QuotaEntity, wanted: Mapping[str, Component], strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) > len(wanted):
        return False
    for kind, component in wanted.items():
        if kind not in names:
            return False
        name = names[kind]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True
