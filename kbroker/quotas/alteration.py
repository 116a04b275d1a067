"""Checks of quota alterations, and what they make of the quotas: pure, with Kafka's rules and texts.

An entity with an error keeps all its quotas; the other entities of the request are altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kbroker.errors import InvalidRequestError, KafkaError, bare
from kbroker.metadata.image import QuotaEntity
from kbroker.quotas.rules import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONTROLLER_MUTATION_RATE,
    IP,
    IP_KEYS,
    REQUEST_PERCENTAGE,
    USER,
)

_FRACTIONAL = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
_EPSILON = 1e-6
_LARGEST = {"connection_creation_rate": (2**31 - 1, "an INT")}
_LONG = (2**63 - 1, "a LONG")

Values = Mapping[str, float]


class QuotaEdit(NamedTuple):
    """One operation of a request; value None: remove."""

    key: str
    value: float | None


class EntityAlteration(NamedTuple):
    """What a request does to one entity."""

    entity: QuotaEntity
    edits: Sequence[QuotaEdit]


class Alterations:
    """What alterations make of the quotas: `results` has an error or None for each entity, `changes` the values of the
    entities that change.  `resolves(name)`: whether it is an address or a host that has one."""

    def __init__(self, current: Mapping[QuotaEntity, Values], resolves: Callable[[str], bool]) -> None:
        self.results: dict[QuotaEntity, KafkaError | None] = {}
        self.changes: dict[QuotaEntity, Values] = {}
        self._current = current
        self._resolves = resolves

    def take(self, alteration: EntityAlteration) -> None:
        """One more."""
        entity, edits = alteration
        if entity in self.results or len({edit.key for edit in edits}) < len(edits):
            self.results[entity] = InvalidRequestError(f"Ignoring duplicate entity {_shown(entity)}")
            return
        try:
            keys = _keys_for(entity, self._resolves)
            values = _edited(dict(self._current.get(entity, {})), edits, keys)
        except InvalidRequestError as error:
            self.results[entity] = bare(error)
            return
        self.results[entity] = None
        if values != self._current.get(entity, {}):
            self.changes[entity] = values


def alter(
    alterations: Iterable[EntityAlteration],
    current: Mapping[QuotaEntity, Values],
    resolves: Callable[[str], bool],
) -> Alterations:
    """What these make of the quotas, at once."""
    outcome = Alterations(current, resolves)
    for each in alterations:
        outcome.take(each)
    return outcome


def _shown(entity: QuotaEntity) -> str:
    return "ClientQuotaEntity(entries={" + ", ".join(f"{kind}={name or 'null'}" for kind, name in entity) + "})"


def _keys_for(entity: QuotaEntity, resolves: Callable[[str], bool]) -> frozenset[str]:
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    kinds = {kind for kind, _ in entity}
    if IP not in kinds:
        return CLIENT_KEYS
    if len(kinds) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    address = entity[0][1]
    if address is not None and not resolves(address):
        raise InvalidRequestError(f"{address} is not a valid IP or resolvable host.")
    return IP_KEYS


def _edited(values: dict[str, float], edits: Sequence[QuotaEdit], keys: frozenset[str]) -> dict[str, float]:
    for key, value in edits:
        if value is None:
            values.pop(key, None)
            continue
        _check(key, value, keys)
        values[key] = value
    return values


def _check(key: str, value: float, keys: frozenset[str]) -> None:
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if key in _FRACTIONAL:
        return
    largest, kind = _LARGEST.get(key, _LONG)
    if value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large for {kind}.")
    # Not a number is no whole number either.
    if not abs(int(value + _EPSILON if value == value else 0) - value) <= _EPSILON:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")
