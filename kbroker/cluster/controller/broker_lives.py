"""What brokers and controllers report of themselves to the active controller: that they are there, and still are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kbroker.errors import NotControllerError

if TYPE_CHECKING:
    from kbroker.schemas import wire


class BrokerLives(Protocol):
    """Each method gives the answer of its API; `wrong_controller` is raised where this node does not lead."""

    async def register_broker(self, request: wire.BrokerRegistrationRequest) -> wire.BrokerRegistrationResponse:
        """A broker has started."""

    async def heartbeat(self, request: wire.BrokerHeartbeatRequest) -> wire.BrokerHeartbeatResponse:
        """A broker lives, and says what it wants: to serve, or to stop."""

    async def assign_directories(self, request: wire.AssignReplicasToDirsRequest) -> wire.AssignReplicasToDirsResponse:
        """A broker says in which log directories its replicas are (KIP-858)."""

    async def register_controller(
        self, request: wire.ControllerRegistrationRequest
    ) -> wire.ControllerRegistrationResponse:
        """A controller has started (KIP-919)."""


def wrong_controller(leader_id: int) -> NotControllerError:
    """The refusal of a node that is not the active controller, in Kafka's words (`ControllerExceptions`).

    `leader_id`: the node that leads the quorum, -1: none is known.
    """
    if leader_id < 0:
        return NotControllerError("No controller appears to be active.")
    return NotControllerError(f"The active controller appears to be node {leader_id}.")
