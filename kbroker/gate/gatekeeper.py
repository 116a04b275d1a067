"""Gives connections their gates, by the cluster's quotas and the authorizer.

A listener has the gatekeeper only while there is a quota for clients, an authorizer, or its clients authenticate:
otherwise its connections ask nothing.  A client without a quota has no gate, either, where nothing else is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker._fast.gate.gate import Gatekeeper
from kbroker.gate.client_gate import ClientGate
from kbroker.metadata.image import ClusterImage
from kbroker.quotas.meters import QuotaKind, QuotaMeters
from kbroker.quotas.rate import Windows
from kbroker.quotas.rules import Limit, QuotaRules
from kbroker.security.authorizer import Authorizer, CachedAuthorizer
from kbroker.security.principal import Session

if TYPE_CHECKING:
    from kbroker._fast.gate.gate import Gate
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.route import Endpoint
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig


class BrokerGatekeeper(Gatekeeper):
    """The gatekeeper of one broker."""

    gate_class = ClientGate

    def __init__(
        self, clock: Clock, image: ClusterImage, meters: QuotaMeters, authorizer: Authorizer | None = None
    ) -> None:
        self._clock = clock
        self.meters = meters
        self.rules = QuotaRules(image.quotas)
        self._authorizer = None if authorizer is None else CachedAuthorizer(authorizer, self.renew)
        self._guarded: list[tuple[Endpoint, bool]] = []

    @property
    def denials(self) -> Mapping[tuple[str, str], int]:
        """How often the authorizer has refused clients something, by kind of resource and operation."""
        return {} if self._authorizer is None else self._authorizer.denials

    def now_ms(self) -> int:
        """Milliseconds on a clock that does not go back."""
        return int(self._clock.monotonic() * 1000)

    def guard(self, endpoint: Endpoint, *, authenticates: bool) -> None:
        """Guards the connections of a listener whenever there is a quota, an authorizer or authentication.

        `authenticates`: its clients have to prove who they are.
        """
        self._guarded.append((endpoint, authenticates))
        self._stand()

    def _stand(self) -> None:
        is_needed = self._authorizer is not None or any(self.rules.has(kind.value) for kind in QuotaKind)
        for endpoint, authenticates in self._guarded:
            endpoint.gatekeeper = self if authenticates or is_needed else None

    def follow(self, image: ClusterImage) -> None:
        """Take the cluster's quotas."""
        self.rules = QuotaRules(image.quotas)
        self.renew()
        self._stand()

    def gate_for(self, connection: Connection, client_id: str | None) -> Gate | None:
        session: Session = connection.session
        limits: dict[QuotaKind, Limit] = {}
        for kind in QuotaKind:
            limit = self.rules.limit(kind.value, session.principal.name, client_id or "")
            if limit is not None:
                limits[kind] = limit
        if not limits and self._authorizer is None and session.is_authenticated and session.expires_at is None:
            return None
        return self.gate_class(session, self._authorizer, limits, self.meters, self.now_ms, self)


def meters_of(config: BrokerConfig) -> QuotaMeters:
    """Meters with the windows that the settings give."""
    get = config.get
    return QuotaMeters(
        Windows(get("quota.window.num"), get("quota.window.size.seconds") * 1000),
        Windows(get("controller.quota.window.num"), get("controller.quota.window.size.seconds") * 1000),
    )
