"""The gates at the listeners of a node with the controller role: what the quorum and brokers ask is throttled by no
quota.

A quota on the principal of brokers, or on all users, would delay votes, fetches of the metadata log and heartbeats, and
so cost the leadership, or fence brokers.  A request in an envelope counts for the client who sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.gate.client_gate import ClientGate
from kbroker.gate.gatekeeper import BrokerGatekeeper
from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    from kbroker._fast.net.request_context import RequestContext

NEVER_THROTTLED: Final = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ENVELOPE,
    }
)
"""All that needs CLUSTER_ACTION."""


class ControllerGate(ClientGate):
    """See the module."""

    def answer_limit(self, ctx: RequestContext) -> int:
        return -1

    def settle(self, ctx: RequestContext, bytes_in: int, bytes_out: int, spent_ns: int) -> tuple[int, bool]:
        if ctx.api_key in NEVER_THROTTLED:
            return 0, False
        return super().settle(ctx, bytes_in, bytes_out, spent_ns)


class ControllerGatekeeper(BrokerGatekeeper):
    """The gatekeeper of a controller."""

    gate_class = ControllerGate
