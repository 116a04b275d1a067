"""The clients that push metrics, and the values that they pushed last; all on the event loop.

A client asks for its subscription (GetTelemetrySubscriptions), then pushes once in each interval, until a push that
says that it is the last.  A client that asks or pushes too early, pushes under an old subscription, or goes on after
its last push, gets Kafka's error (ClientMetricsManager).

Bounded: the least recently seen client is forgotten beyond `MAX_CLIENTS`, values beyond `MAX_POINTS` of one client and
`MAX_VALUES` in all are left out, and a client that has been silent for three intervals is forgotten with its values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.errors import (
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from kbroker.metrics.sources import ClientSample
from kbroker.telemetry.otlp import Point
from kbroker.telemetry.subscription import ClientIdentity, Subscription, readable, subscription_for
from kbroker.types import RESERVED_UUIDS, ZERO_UUID, Link, random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.config import ClientMetricsConfig

logger = logging.getLogger("kbroker.telemetry")

MAX_CLIENTS = 1_000
MAX_POINTS = 500
MAX_VALUES = 50_000
KEPT_INTERVALS = 3
COMPRESSION_TYPES = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: what a push may be compressed by, the best first."""
_FORGIVING = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client asks again at once."""

Overrides = Mapping[str, Mapping[str, str]]
"""What is set for each subscription, by its name."""

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Client:
    """One client.  Times in ms of a clock that never goes back; -1: not yet."""

    identity: ClientIdentity
    subscription: Subscription
    overrides: Overrides
    link: Link
    asked_ms: float = -1
    pushed_ms: float = -1
    seen_ms: float = 0
    has_asked: bool = False
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    values: dict[SeriesKey, tuple[float, bool]] = field(default_factory=dict)


class TelemetryClients:
    """`overrides()` gives the settings of all subscriptions: the same object while nothing changes."""

    __slots__ = ("_clients", "_configs", "_known_overrides", "_monotonic", "_overrides")

    def __init__(self, overrides: Callable[[], Overrides], monotonic: Callable[[], float]) -> None:
        self._overrides = overrides
        self._monotonic = monotonic
        self._clients: dict[bytes, Client] = {}
        self._known_overrides: Overrides = {}
        self._configs: list[ClientMetricsConfig] = []

    def subscribe(
        self, instance_id: bytes, identity: Callable[[str], ClientIdentity], link: Link
    ) -> tuple[bytes, Subscription]:
        """The id that a client has from now on, and what it is asked to push.

        `identity(instance_id)` describes it, `link` is its connection.  ThrottlingQuotaExceededError when it asks
        before its interval is over.
        """
        if instance_id == ZERO_UUID:
            instance_id = random_uuid()
        elif instance_id in RESERVED_UUIDS:
            raise InvalidRequestError("The client instance id is reserved.")
        client = self._client(instance_id, identity, link)
        now = self._now_ms()
        since = max(client.asked_ms, client.pushed_ms)
        is_early = since >= 0 and now - since < client.subscription.interval_ms
        if is_early and client.last_error not in _FORGIVING:
            raise _early(identity, instance_id)
        client.asked_ms = now
        client.has_asked = True
        client.last_error = ErrorCode.NONE
        return instance_id, client.subscription

    def admit(
        self,
        instance_id: bytes,
        identity: Callable[[str], ClientIdentity],
        link: Link,
        subscription_id: int,
        *,
        is_terminating: bool,
        compression_type: int,
        size_bytes: int,
        max_bytes: int,
    ) -> Client:
        """The client whose push may be read; else Kafka's error.  Raises InvalidRequestError."""
        if instance_id in RESERVED_UUIDS:
            raise InvalidRequestError("The client instance id is reserved.")
        client = self._client(instance_id, identity, link)
        try:
            self._check(client, instance_id, identity, subscription_id, is_terminating)
            if compression_type and compression_type not in COMPRESSION_TYPES:
                raise UnsupportedCompressionTypeError(f"Compression type {compression_type} is not known.")
            if size_bytes > max_bytes:
                raise TelemetryTooLargeError(f"{size_bytes} bytes are more than telemetry.max.bytes, {max_bytes}.")
        except KafkaError as error:
            client.last_error = error.code
            raise
        client.last_error = ErrorCode.NONE
        return client

    def _check(
        self,
        client: Client,
        instance_id: bytes,
        identity: Callable[[str], ClientIdentity],
        subscription_id: int,
        is_terminating: bool,
    ) -> None:
        if client.is_terminating:
            raise InvalidRequestError("The client said before that it was its last push.")
        now = self._now_ms()
        # The first push after a subscription comes at a random moment of the interval.
        is_early = (
            not client.has_asked and client.pushed_ms >= 0 and now - client.pushed_ms < client.subscription.interval_ms
        )
        if is_early and not is_terminating:
            raise _early(identity, instance_id)
        client.pushed_ms = now
        client.has_asked = False
        client.is_terminating = is_terminating
        if subscription_id != client.subscription.subscription_id:
            raise UnknownSubscriptionIdError("The client pushes by a subscription that it does not have.")

    def store(self, client: Client, points: Iterable[Point]) -> None:
        """Keep the values of a push; what counts since the last one is added up."""
        total = sum(len(each.values) for each in self._clients.values())
        for point in points:
            key = point.name, point.labels
            known = client.values.get(key)
            if known is None:
                if len(client.values) >= MAX_POINTS or total >= MAX_VALUES:
                    continue
                total += 1
            value = point.value + known[0] if known is not None and point.is_delta else point.value
            client.values[key] = value, point.is_counter

    def samples(self) -> Iterator[ClientSample]:
        """What a scrape shows: the values of all clients that are not silent for too long."""
        self._forget_silent()
        for client in list(self._clients.values()):
            own = (("client_id", client.identity.client_id), ("client_instance_id", client.identity.instance_id))
            for (name, labels), (value, is_counter) in list(client.values.items()):
                yield ClientSample(name, {**dict(labels), **dict(own)}, value, is_counter)

    def __len__(self) -> int:
        return len(self._clients)

    def _follow(self) -> Overrides:
        """The settings as they are now."""
        overrides = self._overrides()
        if overrides is not self._known_overrides:
            self._known_overrides = overrides
            self._configs = readable(overrides.values())
        return overrides

    def _now_ms(self) -> float:
        return self._monotonic() * 1000

    def _client(self, instance_id: bytes, identity: Callable[[str], ClientIdentity], link: Link) -> Client:
        """The client with what it is asked to push now; a new subscription begins a new interval, and so does a client
        whose connection was lost, as Kafka forgets it then.  Its values stay."""
        overrides = self._follow()
        client = self._clients.pop(instance_id, None)
        if client is not None and client.link.closed:
            client = Client(client.identity, client.subscription, client.overrides, link, values=client.values)
        if client is None or client.overrides is not overrides:
            described = identity(uuid_to_text(instance_id))
            subscription = subscription_for(described, self._configs)
            if client is None:
                client = Client(described, subscription, overrides, link)
            elif client.subscription != subscription:
                values = client.values
                client = Client(described, subscription, overrides, link, values=values)
            client.overrides = overrides
        client.seen_ms = self._now_ms()
        self._clients[instance_id] = client
        if len(self._clients) > MAX_CLIENTS:
            self._forget_silent()
        while len(self._clients) > MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]
        return client

    def _forget_silent(self) -> None:
        now = self._now_ms()
        silent = [
            instance_id
            for instance_id, client in self._clients.items()
            if now - client.seen_ms > KEPT_INTERVALS * client.subscription.interval_ms
        ]
        for instance_id in silent:
            del self._clients[instance_id]


def _early(identity: Callable[[str], ClientIdentity], instance_id: bytes) -> ThrottlingQuotaExceededError:
    name = uuid_to_text(instance_id)
    return ThrottlingQuotaExceededError(
        f"Request from the client {identity(name).client_id} ({name}) arrived before the next push interval time."
    )
