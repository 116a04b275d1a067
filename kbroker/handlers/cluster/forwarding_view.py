"""What clients are shown of a KRaft cluster, whose controllers they do not reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.handlers.cluster.cluster_view import ClusterView
from kbroker.handlers.cluster.forwarded import both_serve
from kbroker.metadata.image import NO_CONTROLLER

if TYPE_CHECKING:
    from kbroker.cluster.kraft.forwarding import Forwarding
    from kbroker.handlers.cluster.cluster_view import Shown
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.protocol.api import ApiRange


class ForwardingView(ClusterView):
    """Of a broker that passes requests on."""

    has_fixed_versions = False  # The next controller may have others.

    def __init__(self, forwarding: Forwarding, *, shows_dialled: bool = False) -> None:
        self._forwarding = forwarding
        self.shows_dialled = shows_dialled

    def advertised(self, ranges: tuple[ApiRange, ...]) -> tuple[ApiRange, ...]:
        return both_serve(ranges, self._forwarding.versions)

    def brokers(self, reachable: Shown, registered: Callable[[], Shown]) -> Shown:
        """Where a controller that was held up has fenced all brokers, those that are registered.  Kafka shows none
        then, and librdkafka, which forgets brokers that are not shown, never asks any again."""
        return reachable or registered()

    def controller(self, image: ClusterImage, node_id: int, shown: Iterable[BrokerImage]) -> int:
        """Any broker will do: this one if it is there, a living one before one that is fenced.  A client that sees
        brokers alone, and no controller, waits for one."""
        found = sorted(shown, key=lambda each: (each.is_fenced, each.node_id != node_id))
        return found[0].node_id if found else NO_CONTROLLER
