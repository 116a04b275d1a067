"""What clients are shown of a cluster that depends on who its controller is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint
    from kbroker.protocol.api import ApiRange

    Shown = list[tuple[BrokerImage, Endpoint]]


class ClusterView:
    """Of a broker that is the controller, or whose controller is a broker that clients reach."""

    has_fixed_versions = True
    """Whether the answer to ApiVersions stays the same while the image does."""
    changes_every_broker = False
    """Whether settings of any broker are changed here, and not those of this one alone."""

    shows_dialled = False
    """Whether clients of this broker get the address that they connected to, and not what the image says of it."""

    def advertised(self, ranges: tuple[ApiRange, ...]) -> tuple[ApiRange, ...]:
        """Of the APIs of a listener, what ApiVersions answers."""
        return ranges

    def brokers(self, reachable: Shown, registered: Callable[[], Shown]) -> Shown:
        """The brokers that a client is to know of.

        `reachable`: the living ones that have an endpoint for it; `registered`: those that are fenced as well.
        """
        return reachable

    def controller(self, image: ClusterImage, node_id: int, shown: Iterable[BrokerImage]) -> int:
        """The broker that clients are to take for the controller, NO_CONTROLLER where there is none.

        `node_id` is this broker's, `shown` the brokers that the answer has.
        """
        return image.controller_id

    def node_for_changes(self, image: ClusterImage) -> int | None:
        """The broker that is to be asked for what the controller alone serves; None: this one passes it on."""
        return None


class ElectedControllerView(ClusterView):
    """Of a cluster one of whose brokers is elected as the controller, which the others do not stand for."""

    def node_for_changes(self, image: ClusterImage) -> int | None:
        return image.controller_id
