"""AddRaftVoter (API 80): v0-v1.  RemoveRaftVoter (API 81): v0.  Where there is no quorum of controllers to change.

Kafka's answers at `kraft.version` 0, whose voters are settings: UNSUPPORTED_VERSION, behind the looks that come before.
Clients tell by these two APIs which release a broker is.  A broker of a KRaft cluster forwards them (`forwarded`); one
of a ZooKeeper cluster has them as little as Kafka's has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

NO_DIRECTORY = bytes(16)


def handle_add_raft_voter(ctx: RequestContext, request: wire.AddRaftVoterRequest) -> Struct:
    """AddRaftVoter v0-v1; see the module's docstring."""
    try:
        _check(ctx, request, "Add")
        if not request.listeners:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "Add voter request didn't include an endpoint")
        raise _unsupported("adding")
    except KafkaError as error:
        return wire.AddRaftVoterResponse(error_code=error.code, error_message=error.message)


def handle_remove_raft_voter(ctx: RequestContext, request: wire.RemoveRaftVoterRequest) -> Struct:
    """RemoveRaftVoter v0; see the module's docstring."""
    try:
        _check(ctx, request, "Remove")
        raise _unsupported("removing")
    except KafkaError as error:
        return wire.RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def _check(ctx: RequestContext, request: wire.AddRaftVoterRequest | wire.RemoveRaftVoterRequest, what: str) -> None:
    require_cluster(ctx, Operation.ALTER)
    cluster_id = ctx.services.metadata_cache.image.cluster_id
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    if request.voter_id < 0 or request.voter_directory_id == NO_DIRECTORY:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{what} voter request didn't include a valid voter")


def _unsupported(what: str) -> KafkaError:
    return KafkaError.of(
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {what} voter because the kraft.version feature is 0",
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ADD_RAFT_VOTER, 0, 1, handle_add_raft_voter),
    Handler(ApiKey.REMOVE_RAFT_VOTER, 0, 0, handle_remove_raft_voter),
)
