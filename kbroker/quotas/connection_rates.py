"""How fast connections may be made: from one address (KIP-612), on one listener, to the broker.

A connection above the rate of its address is not counted; it is closed, with no request answered, after the time in
which the rate falls back to its limit.  A connection above the rate of its listener or of the broker is served after
that time.  The broker's `max.connection.creation.rate` ignores connections to the inter-broker listener, unless that is
the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kbroker.config import BrokerConfig
from kbroker.network.admission import Admission, Verdict
from kbroker.quotas.rate import SampledRate, Windows
from kbroker.quotas.rules import QuotaRules

NO_LIMIT = 2**31 - 1
RATE_SETTING: Final = "max.connection.creation.rate"
MOST_ADDRESSES = 100_000


class CreationRates(NamedTuple):
    """Limits per second, from the settings: of the broker, and of listeners that have their own."""

    broker: int = NO_LIMIT
    listeners: Mapping[str, int] = {}
    unlimited_listener: str | None = None


class ConnectionRates:
    """Counts connections as they are accepted.  `resolve(name)`: the addresses of a host that a quota names."""

    __slots__ = ("_addresses", "_broker", "_by_address", "_default", "_listeners", "_now_ms", "_rates", "_resolve",
                 "_windows")  # fmt: skip

    def __init__(
        self,
        windows: Windows,
        rates: CreationRates,
        now_ms: Callable[[], int],
        resolve: Callable[[str], frozenset[str]],
    ) -> None:
        self._windows = windows
        self._rates = rates
        self._now_ms = now_ms
        self._resolve = resolve
        self._broker = SampledRate(windows)
        self._listeners: dict[str, SampledRate] = {}
        self._by_address: dict[str, SampledRate] = {}
        self._addresses: dict[str, float] = {}
        self._default: float | None = None

    def change(self, rates: CreationRates) -> None:
        """Other limits from now on; what was counted stays."""
        self._rates = rates

    def follow(self, rules: QuotaRules) -> None:
        """Take the quotas of addresses.  Blocks where a quota names a host, until its addresses are known."""
        named, self._default = rules.addresses()
        self._addresses = {address: limit for name, limit in named.items() for address in self._resolve(name)}
        self._by_address = {address: rate for address, rate in self._by_address.items() if self._limit(address)}

    def _limit(self, address: str) -> float | None:
        return self._addresses.get(address, self._default)

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit at all."""
        return bool(self._addresses) or self._default is not None or self._rates != CreationRates()

    def admit(self, listener: str, address: str) -> Admission:
        """Count a new connection."""
        if not self.is_limited:
            return Admission(Verdict.SERVED)
        now_ms = self._now_ms()
        limit = self._limit(address)
        if limit is not None:
            rate = self._rate_of(address, now_ms)
            delay_ms = _counted(rate, limit, now_ms)
            if delay_ms > 0:
                rate.record(-1, now_ms)
                return Admission(Verdict.REFUSED, delay_ms)
        delay_ms = 0
        if listener in self._rates.listeners:
            counter = self._listeners.setdefault(listener, SampledRate(self._windows))
            delay_ms = _counted(counter, self._rates.listeners[listener], now_ms)
        if self._rates.broker < NO_LIMIT and listener != self._rates.unlimited_listener:
            delay_ms = max(delay_ms, _counted(self._broker, self._rates.broker, now_ms))
        return Admission(Verdict.DELAYED, delay_ms) if delay_ms > 0 else Admission(Verdict.SERVED)

    def _rate_of(self, address: str, now_ms: int) -> SampledRate:
        rate = self._by_address.get(address)
        if rate is None:
            if len(self._by_address) >= MOST_ADDRESSES:
                self.expire(now_ms)
            rate = self._by_address[address] = SampledRate(self._windows)
        return rate

    def expire(self, now_ms: int) -> None:
        """Forget addresses that made no connection in all their windows."""
        self._by_address = {address: rate for address, rate in self._by_address.items() if rate.measure(now_ms)[0] > 0}


def _counted(rate: SampledRate, limit: float, now_ms: int) -> int:
    rate.record(1, now_ms)
    return rate.throttle_ms(limit, now_ms) if limit > 0 else rate.measure(now_ms)[1]


def creation_rates(config: BrokerConfig) -> CreationRates:
    """The limits in the settings."""
    named = [each.name for each in config.every_listener]
    # Beside the broker's own limit, not in its place.
    own = {name: int(rate) for name in named if (rate := config.own_of_listener(name, RATE_SETTING)) is not None}
    between = config.get("inter.broker.listener.name") if len(config.listeners) > 1 else None
    return CreationRates(config.get(RATE_SETTING), own, between)
