"""Everything of one broker that enforces quotas, joined: built once, it follows images and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.gate.gatekeeper import BrokerGatekeeper, meters_of
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, MetadataDelta
from kbroker.metrics.sources import QuotaRow
from kbroker.network.admission import Admission
from kbroker.quotas.connection_rates import ConnectionRates, creation_rates
from kbroker.quotas.host_names import HostNames
from kbroker.quotas.meters import QuotaKind
from kbroker.security.authorizer import Authorizer

if TYPE_CHECKING:
    from kbroker._fast.net.route import Endpoint
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig

EXPIRE_INTERVAL_MS = 30_000


class QuotaEnforcement:
    """The gatekeeper and the rates of connections.  Making one resolves host names in quotas, which may block."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        cache: MetadataCache,
        hosts: HostNames,
        authorizer: Authorizer | None = None,
        gatekeeper: type[BrokerGatekeeper] = BrokerGatekeeper,
    ) -> None:
        self.meters = meters_of(config)
        self.gatekeeper = gatekeeper(clock, cache.image, self.meters, authorizer)
        self.connection_rates = ConnectionRates(
            self.meters.windows(QuotaKind.PRODUCE),
            creation_rates(config),
            self.gatekeeper.now_ms,
            hosts.addresses_of,
        )
        self.connection_rates.follow(self.gatekeeper.rules)
        cache.subscribe(self._apply)

    def _apply(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        if delta.quotas:
            self.gatekeeper.follow(new)
            self.connection_rates.follow(self.gatekeeper.rules)

    def follow(self, config: BrokerConfig) -> None:
        """Take settings that were changed at run time."""
        self.connection_rates.change(creation_rates(config))

    def guard(self, endpoint: Endpoint, *, authenticates: bool) -> None:
        """Stand in front of the answers to a listener's connections; see `BrokerGatekeeper.guard`."""
        self.gatekeeper.guard(endpoint, authenticates=authenticates)

    def admit(self, listener: str, address: str) -> Admission:
        """Count a connection that was accepted."""
        return self.connection_rates.admit(listener, address)

    def rows(self) -> list[QuotaRow]:
        """Every meter, for metrics."""
        return list(self.meters.rows(self.gatekeeper.now_ms()))

    def expire(self) -> None:
        """Drop meters that nothing counts in any more; call it every EXPIRE_INTERVAL_MS."""
        now_ms = self.gatekeeper.now_ms()
        self.meters.expire(now_ms)
        self.connection_rates.expire(now_ms)
