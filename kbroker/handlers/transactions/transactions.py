"""Transactions of producers: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

InitProducerId v0-v5: gives a producer the id and epoch that let the log tell its retries from new batches.
    Without a transactional id (idempotent producers) every answer is a fresh id at epoch 0.  v3+ requests may name the
    id and epoch that the producer has; Kafka checks that both or neither are given and then hands out a fresh id as
    well: it keeps no state for idempotent producers, which bump their epochs themselves (KIP-360).
    An empty transactional id is INVALID_REQUEST.  With one, its predecessors are fenced and their transaction aborted.
AddPartitionsToTxn v0-v5: up to v3 of one producer; v4+, which brokers send, of several, and may only ask (KIP-890).
    All partitions or none: where one does not exist, the others are OPERATION_NOT_ATTEMPTED.
AddOffsetsToTxn v0-v4: adds the partition of `__consumer_offsets` that a group's offsets are in.
EndTxn v0-v5: v5 answers with the id and epoch of the next transaction.

The answers wait until the coordinator's record is committed.  A fenced producer is answered INVALID_PRODUCER_EPOCH in
versions whose clients do not know PRODUCER_FENCED (KIP-588).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kbroker.coordinator.runtime.plan import write_error
from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest
from kbroker.coordinator.transactions.transaction_metadata import CLASSIC_VERSION
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import (
    may,
    may_cluster,
    may_for_any,
    may_topic,
    require_cluster,
    require_group,
    require_transactional_id,
)
from kbroker.handlers.groups.committed_state import answer_when_committed, ensure_group_topic
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.storage.log.producer_state import EPOCH_PER_TRANSACTION
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.wire.codec import Struct
    from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
    from kbroker.handlers.services import RequestContext

    Topics = Iterable[wire.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]

logger = logging.getLogger("kbroker.handlers")

_INIT_KNOWS_FENCED = 4
_KNOWS_FENCED = 2
_BATCHED = schema("AddPartitionsToTxnRequest").first_version("transactions")
_END_BUMPS_EPOCH = schema("EndTxnResponse").first_version("producer_epoch")

_InitResponse = wire.InitProducerIdResponse
_AddResponse = wire.AddPartitionsToTxnResponse


def code_for(error: KafkaError, version: int, knows_fenced: int) -> ErrorCode:
    """The code that a client of this version is given."""
    code = write_error(error)
    if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# InitProducerId


async def handle_init_producer_id(ctx: RequestContext, request: wire.InitProducerIdRequest) -> Struct | Pending:
    """InitProducerId v0-v5; see the module's docstring."""
    if not _may_initialize(ctx, request.transactional_id):
        is_idempotent = request.transactional_id is None
        return _not_initialized(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_idempotent else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    if request.transactional_id == "" or (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    ):
        return _not_initialized(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        try:
            producer_id = await ctx.services.producer_ids.next_id()
        except KafkaError as error:
            logger.error("cannot give a producer id to %s: %s", ctx.client_id, error)
            # Kafka's answer while it has no block of ids; clients ask again.
            return _not_initialized(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _InitResponse(producer_id=producer_id, producer_epoch=0)
    expected = ProducerRequest(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        outcome = await ctx.services.transaction_coordinator.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        return _not_initialized(code_for(error, ctx.api_version, _INIT_KNOWS_FENCED))
    return answer_when_committed(ctx, outcome, _initialized, _not_initialized)


def _may_initialize(ctx: RequestContext, transactional_id: str | None) -> bool:
    """An idempotent producer needs a topic that it may write, or IDEMPOTENT_WRITE (KIP-679)."""
    if transactional_id is not None:
        return may(ctx, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
    is_trusted = may_cluster(ctx, Operation.IDEMPOTENT_WRITE, quietly=True)
    return is_trusted or may_for_any(ctx, Operation.WRITE, ResourceKind.TOPIC)


def _initialized(metadata: TransactionMetadata) -> Struct:
    return _InitResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def _not_initialized(code: ErrorCode) -> Struct:
    return _InitResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


# AddPartitionsToTxn


async def handle_add_partitions_to_txn(
    ctx: RequestContext, request: wire.AddPartitionsToTxnRequest
) -> Struct | Pending:
    """AddPartitionsToTxn v0-v5; see the module's docstring."""
    if ctx.api_version < _BATCHED:
        return await _add_one(ctx, request)
    try:
        # Brokers send these.
        require_cluster(ctx, Operation.CLUSTER_ACTION)
    except KafkaError as error:
        return _AddResponse(error_code=error.code)
    # The answer does not wait for commits: transactions not committed yet get CONCURRENT_TRANSACTIONS, and brokers
    # retry.
    results = []
    pace = ctx.services.slices.pace()
    for each in request.transactions:
        await pace
        producer = ProducerRequest(each.transactional_id, each.producer_id, each.producer_epoch, EPOCH_PER_TRANSACTION)
        asked = await _asked(ctx, each.topics, pace)
        _batched_codes(ctx, producer, asked, verify_only=bool(each.verify_only))
        results.append(
            _AddResponse.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=list(asked.topics.values())
            )
        )
    return _AddResponse(results_by_transaction=results)


async def _add_one(ctx: RequestContext, request: wire.AddPartitionsToTxnRequest) -> Struct | Pending:
    asked = await _asked(ctx, request.v3_and_below_topics, ctx.services.slices.pace())

    def answer(code: ErrorCode) -> Struct:
        if not asked.is_refused:
            asked.refuse(code)
        return _AddResponse(results_by_topic_v3_and_below=list(asked.topics.values()))

    try:
        require_transactional_id(ctx, Operation.WRITE, request.v3_and_below_transactional_id)
    except KafkaError as error:
        asked.refuse(error.code)
        return answer(error.code)
    if asked.is_refused:
        return answer(ErrorCode.NONE)
    producer = ProducerRequest(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        CLASSIC_VERSION,
    )
    try:
        _check_id(producer)
        outcome = ctx.services.transaction_coordinator.add_partitions(producer, frozenset(asked.rows))
    except KafkaError as error:
        return answer(code_for(error, ctx.api_version, _KNOWS_FENCED))
    return answer_when_committed(ctx, outcome, lambda _: answer(ErrorCode.NONE), answer)


def _batched_codes(ctx: RequestContext, producer: ProducerRequest, asked: _Asked, *, verify_only: bool) -> None:
    if asked.is_refused:
        return
    partitions = frozenset(asked.rows)
    try:
        _check_id(producer)
        coordinator = ctx.services.transaction_coordinator
        if verify_only:
            asked.refuse(ErrorCode.TRANSACTION_ABORTABLE, partitions - coordinator.verify(producer, partitions))
            return
        outcome = coordinator.add_partitions(producer, partitions)
        if not outcome.is_committed:
            raise KafkaError.of(ErrorCode.CONCURRENT_TRANSACTIONS)
    except KafkaError as error:
        asked.refuse(write_error(error))


def _check_id(producer: ProducerRequest) -> None:
    if not producer.transactional_id:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST)


class _Asked:
    """The partitions that are to be added, each with the row of its answer; `is_refused`: one of them does not exist,
    or may not be written, and none is added."""

    __slots__ = ("is_refused", "rows", "topics")

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, _AddResponse.AddPartitionsToTxnPartitionResult] = {}
        self.topics: dict[str, _AddResponse.AddPartitionsToTxnTopicResult] = {}
        self.is_refused = False

    def add(self, name: str, index: int, code: ErrorCode) -> None:
        """One more; named twice it is answered once."""
        if code:
            self.is_refused = True
        row = _AddResponse.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        if self.rows.setdefault(TopicPartition(name, index), row) is not row:
            return
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = _AddResponse.AddPartitionsToTxnTopicResult(name=name)
        topic.results_by_partition.append(row)

    def refuse(self, code: ErrorCode, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Answer these with a code; None: all."""
        for row in self.rows.values() if partitions is None else map(self.rows.__getitem__, partitions):
            row.partition_error_code = code


async def _asked(ctx: RequestContext, topics: Topics, pace: Pace) -> _Asked:
    cache = ctx.services.metadata_cache
    # Later versions are the brokers' own, and come with CLUSTER_ACTION.
    of_client = ctx.api_version < _BATCHED
    asked = _Asked()
    for each in topics:
        await pace
        known = cache.topic(each.name)
        may_write = not of_client or may_topic(ctx, Operation.WRITE, each.name)
        for index in each.partitions:
            await pace
            code = ErrorCode.NONE
            if not may_write:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or not 0 <= index < len(known.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked.add(each.name, index, code)
    if asked.is_refused:
        for row in asked.rows.values():
            await pace
            row.partition_error_code = row.partition_error_code or ErrorCode.OPERATION_NOT_ATTEMPTED
    return asked


# AddOffsetsToTxn


async def handle_add_offsets_to_txn(ctx: RequestContext, request: wire.AddOffsetsToTxnRequest) -> Struct | Pending:
    """AddOffsetsToTxn v0-v4; see the module's docstring."""
    producer = ProducerRequest(request.transactional_id, request.producer_id, request.producer_epoch, CLASSIC_VERSION)
    await ensure_group_topic(ctx)
    try:
        require_transactional_id(ctx, Operation.WRITE, request.transactional_id)
        require_group(ctx, Operation.READ, request.group_id)
        _check_id(producer)
        index = ctx.services.group_coordinator.partition_of(request.group_id)
        outcome = ctx.services.transaction_coordinator.add_partitions(
            producer, frozenset((TopicPartition(GROUP_METADATA_TOPIC, index),))
        )
    except KafkaError as error:
        return _offsets_added(code_for(error, ctx.api_version, _KNOWS_FENCED))
    return answer_when_committed(ctx, outcome, lambda _: _offsets_added(ErrorCode.NONE), _offsets_added)


def _offsets_added(code: ErrorCode) -> Struct:
    return wire.AddOffsetsToTxnResponse(error_code=code)


# EndTxn


async def handle_end_txn(ctx: RequestContext, request: wire.EndTxnRequest) -> Struct | Pending:
    """EndTxn v0-v5; see the module's docstring."""
    version = CLASSIC_VERSION if ctx.api_version < _END_BUMPS_EPOCH else EPOCH_PER_TRANSACTION
    producer = ProducerRequest(request.transactional_id, request.producer_id, request.producer_epoch, version)
    try:
        require_transactional_id(ctx, Operation.WRITE, request.transactional_id)
        _check_id(producer)
        outcome = await ctx.services.transaction_coordinator.end(producer, bool(request.committed))
    except KafkaError as error:
        return _not_ended(code_for(error, ctx.api_version, _KNOWS_FENCED))
    return answer_when_committed(ctx, outcome, partial(_ended, ctx.api_version), _not_ended)


def _ended(version: int, metadata: TransactionMetadata) -> Struct:
    if version < _END_BUMPS_EPOCH:
        return wire.EndTxnResponse()
    if metadata.next_producer_id != NO_PRODUCER_ID:
        return wire.EndTxnResponse(producer_id=metadata.next_producer_id, producer_epoch=0)
    return wire.EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def _not_ended(code: ErrorCode) -> Struct:
    return wire.EndTxnResponse(error_code=code)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.INIT_PRODUCER_ID, 0, 5, handle_init_producer_id),
    Handler(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, handle_add_partitions_to_txn),
    Handler(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, handle_add_offsets_to_txn),
    Handler(ApiKey.END_TXN, 0, 5, handle_end_txn),
)
