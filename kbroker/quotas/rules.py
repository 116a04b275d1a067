"""Which limit applies to whom: quotas by entity, looked up in Kafka's order of precedence.

An entity is (type, name) pairs sorted by type, the name None for the default of that type: `(("client-id", "app"),
("user", None))` is client id "app" of any user without a quota of its own.  For a user and a client id the first of
these that has the setting decides:

    user + client id, user + default client id, user,
    default user + client id, default user + default client id, default user,
    client id, default client id

A `Share` names the connections that share one limit: a quota on a user is shared by all clients of the user, a quota on
a client id by all users with that client id, a quota on both by the connections with both.  A default quota applies to
each user or client id separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbroker.metadata.image import QuotaEntity

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
IP_KEYS = frozenset({CONNECTION_CREATION_RATE})


class Share(NamedTuple):
    """Who uses up one limit together; "" for any."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """A limit per second, and who shares it."""

    per_second: float
    share: Share


def hosts_of(entities: Iterable[QuotaEntity]) -> frozenset[str]:
    """The addresses and host names that entities name."""
    return frozenset(name for entity in entities for kind, name in entity if kind == IP and name)


class QuotaRules:
    """All quotas of a cluster; never changed."""

    __slots__ = ("_keys", "quotas")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.quotas = quotas
        self._keys = frozenset(key for values in quotas.values() for key in values)

    def has(self, key: str) -> bool:
        """Whether any entity has that setting."""
        return key in self._keys

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The limit for a client; None where there is none.  Quotas of client ids, the default ones as well, are for
        clients that name one, as in Kafka."""
        if key not in self._keys:
            return None
        for entity, share in (
            (((CLIENT_ID, client_id), (USER, user)), Share(user, client_id)),
            (((CLIENT_ID, None), (USER, user)), Share(user, client_id)),
            (((USER, user),), Share(user, "")),
            (((CLIENT_ID, client_id), (USER, None)), Share(user, client_id)),
            (((CLIENT_ID, None), (USER, None)), Share(user, client_id)),
            (((USER, None),), Share(user, "")),
            (((CLIENT_ID, client_id),), Share("", client_id)),
            (((CLIENT_ID, None),), Share("", client_id)),
        ):
            if not client_id and entity[0][0] == CLIENT_ID:
                continue
            value = self.quotas.get(entity, {}).get(key)
            if value is not None:
                return Limit(value, share)
        return None

    def addresses(self) -> tuple[dict[str, float], float | None]:
        """Connections a second by address or host name, and for every address that has none of its own."""
        default = self.quotas.get(((IP, None),), {}).get(CONNECTION_CREATION_RATE)
        named = {
            entity[0][1]: values[CONNECTION_CREATION_RATE]
            for entity, values in self.quotas.items()
            if entity[0][0] == IP and entity[0][1] is not None and CONNECTION_CREATION_RATE in values
        }
        return named, default
