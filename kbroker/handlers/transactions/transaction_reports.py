"""Transactions for tools: ListTransactions, DescribeTransactions (KIP-664).

ListTransactions v0-v2: all that this broker coordinates; v1 filters by how long they are open, v2 by a pattern of the
    id (RE2's, as in Kafka), which has to match as a whole.
DescribeTransactions v0: TRANSACTIONAL_ID_NOT_FOUND for one that is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.transactions.transaction_records import by_topic
from kbroker.coordinator.transactions.transaction_state import BY_NAME
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may, may_topic, require_transactional_id
from kbroker.handlers.table import Handler
from kbroker.patterns import PatternError, compile_pattern
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

_ListResponse = wire.ListTransactionsResponse
_DescribeResponse = wire.DescribeTransactionsResponse


async def handle_list_transactions(ctx: RequestContext, request: wire.ListTransactionsRequest) -> Struct:
    """ListTransactions v0-v2; see the module's docstring."""
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    unknown = [name for name in request.state_filters if name not in BY_NAME]
    producer_ids = set(request.producer_id_filters)
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_pattern(request.transactional_id_pattern)
        except PatternError:
            return _ListResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = ctx.services.clock.now_ms()
    pace = ctx.services.slices.pace()
    rows = []
    try:
        for metadata in ctx.services.transaction_coordinator.all_transactions():
            await pace
            if not may(ctx, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, metadata.transactional_id):
                continue
            if request.state_filters and metadata.state not in states:
                continue
            if producer_ids and metadata.producer_id not in producer_ids:
                continue
            if request.duration_filter >= 0 and now_ms - metadata.started_ms <= request.duration_filter:
                continue
            if pattern is not None and not pattern.fullmatch(metadata.transactional_id):
                continue
            rows.append(
                _ListResponse.TransactionState(
                    transactional_id=metadata.transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.value,
                )
            )
    except KafkaError as error:
        return _ListResponse(error_code=error.code)
    return _ListResponse(unknown_state_filters=unknown, transaction_states=rows)


async def handle_describe_transactions(ctx: RequestContext, request: wire.DescribeTransactionsRequest) -> Struct:
    """DescribeTransactions v0; see the module's docstring."""
    pace = ctx.services.slices.pace()
    rows = []
    for transactional_id in request.transactional_ids:
        await pace
        rows.append(_described(ctx, transactional_id))
    return _DescribeResponse(transaction_states=rows)


def _described(ctx: RequestContext, transactional_id: str) -> _DescribeResponse.TransactionState:
    row = _DescribeResponse.TransactionState(transactional_id=transactional_id)
    try:
        require_transactional_id(ctx, Operation.DESCRIBE, transactional_id)
        if not transactional_id:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST)
        metadata = ctx.services.transaction_coordinator.find(transactional_id)
    except KafkaError as error:
        row.error_code = error.code
        return row
    if metadata is None:
        row.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return row
    row.transaction_state = metadata.state.value
    row.transaction_timeout_ms = metadata.timeout_ms
    row.transaction_start_time_ms = metadata.started_ms
    row.producer_id = metadata.producer_id
    row.producer_epoch = metadata.producer_epoch
    row.topics = [
        _DescribeResponse.TopicData(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(metadata.partitions).items()
        if may_topic(ctx, Operation.DESCRIBE, topic)
    ]
    return row


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, handle_describe_transactions),
    Handler(ApiKey.LIST_TRANSACTIONS, 0, 2, handle_list_transactions),
)
