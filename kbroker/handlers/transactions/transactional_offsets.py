"""TxnOffsetCommit (API 28): v0-v5 (KIP-98, KIP-447).

Offsets that a transaction commits for a group: they are written to `__consumer_offsets` as records of the transaction,
and count once its marker comes.  v3+ names the member, which is checked as in OffsetCommit; v5 has the partition added
to the transaction by this broker (KIP-890).  Topics and partitions that do not exist are refused one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.classic.messages import PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.runtime.plan import TransactionalProducer, write_error
from kbroker.errors import ErrorCode, InvalidGroupIdError, InvalidRequestError, KafkaError, again, bare
from kbroker.gate.access import may, may_group, may_topic
from kbroker.handlers.groups.committed_state import ensure_group_topic, when_committed
from kbroker.handlers.groups.offsets import PORTION
from kbroker.handlers.table import Handler
from kbroker.handlers.transactions import verification
from kbroker.handlers.transactions.verification import Batch, ClientGeneration
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import NO_SEQUENCE

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.handlers.services import RequestContext

    Slot = wire.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

FIRST_ADDING_VERSION = 5
FIRST_ABORTABLE_VERSION = 4
_KNOWS_LOADING = 2


async def handle_txn_offset_commit(
    ctx: RequestContext, request: wire.TxnOffsetCommitRequest
) -> wire.TxnOffsetCommitResponse:
    """TxnOffsetCommit v0-v5; see the module's docstring."""
    response = wire.TxnOffsetCommitResponse
    cache = ctx.services.metadata_cache
    pace = ctx.services.slices.pace()
    commits: list[PartitionCommit] = []
    slots: list[Slot] = []
    topics = []
    refusal = _refusal(ctx, request)
    for asked in request.topics:
        await pace
        topic = cache.topic(asked.name)
        partitions = []
        is_readable = not refusal and may_topic(ctx, Operation.READ, asked.name)
        for each in asked.partitions:
            await pace
            slot = response.TxnOffsetCommitResponsePartition(partition_index=each.partition_index)
            partitions.append(slot)
            if refusal:
                slot.error_code = refusal
                continue
            if not is_readable:
                slot.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if topic is None or not 0 <= each.partition_index < len(topic.partitions):
                slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            slots.append(slot)
            commits.append(
                PartitionCommit(
                    topic.name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    topic_id=topic.topic_id,
                )
            )
        topics.append(response.TxnOffsetCommitResponseTopic(name=asked.name, partitions=partitions))
    if commits:
        await _commit(ctx, request, commits, slots, pace)
    return response(topics=topics)


def _refusal(ctx: RequestContext, request: wire.TxnOffsetCommitRequest) -> ErrorCode:
    """Why the client may commit nothing at all under this transactional id, or for this group; NONE where it may."""
    if not may(ctx, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not may_group(ctx, Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _commit(
    ctx: RequestContext,
    request: wire.TxnOffsetCommitRequest,
    commits: list[PartitionCommit],
    slots: list[Slot],
    pace: Pace,
) -> None:
    """Portion by portion: each is admitted by itself, as the group may have begun a new generation meanwhile."""
    committer = Committer(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    producer = TransactionalProducer(request.producer_id, request.producer_epoch)
    refusal: KafkaError | None = None
    try:
        await _verify(ctx, request)
    except KafkaError as error:
        refusal = bare(error)
    for start in range(0, len(commits), PORTION):
        await pace
        portion = slots[start : start + PORTION]
        asked = commits[start : start + PORTION]
        try:
            if refusal is not None:
                raise again(refusal)
            codes = ctx.services.group_coordinator.commit_transactional_offsets(
                committer, asked, producer, ctx.api_version
            )
        except KafkaError as error:
            codes = [_known(write_error(error), ctx.api_version)] * len(portion)
        for slot, code in zip(portion, codes, strict=True):
            slot.error_code = code


async def _verify(ctx: RequestContext, request: wire.TxnOffsetCommitRequest) -> None:
    """The producer may write offsets of the group in its transaction.  Raises KafkaError."""
    services = ctx.services
    if not request.group_id:
        raise InvalidGroupIdError()
    if not request.transactional_id:
        raise InvalidRequestError("an empty transactional id")
    await ensure_group_topic(ctx)
    index = services.group_coordinator.partition_of(request.group_id)
    services.group_coordinator.check_partition(index)
    partition = services.replica_manager.partition(GROUP_METADATA_TOPIC, index)
    generation = ClientGeneration(ctx.api_version >= FIRST_ADDING_VERSION, ctx.api_version >= FIRST_ABORTABLE_VERSION)
    batch = Batch(partition, request.producer_id, request.producer_epoch, NO_SEQUENCE)
    guard = verification.start(batch, generation)
    if verification.needs_verification(services, guard, generation):
        (error,) = await verification.verify(services, request.transactional_id, [batch], generation)
        if error is not None:
            raise again(error)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
        # Producers before Kafka 2.0 may fail for good (KAFKA-7296).
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _refused_commits(answer: wire.TxnOffsetCommitResponse, code: ErrorCode) -> wire.TxnOffsetCommitResponse:
    """Those that were stored, and are not committed."""
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return answer


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.TXN_OFFSET_COMMIT, 0, 5, when_committed(handle_txn_offset_commit, _refused_commits)),
)
