"""What comes before the append of a produce with a transactional id: its batches are verified (`verification`).

A batch whose transaction is open in its partition already goes on at once, without a look at the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BatchError, read_header
from kbroker.errors import KafkaError, bare
from kbroker.gate.access import may
from kbroker.handlers.transactions import verification
from kbroker.handlers.transactions.verification import Batch, ClientGeneration
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.handlers.records.partition_append import PartitionAppend
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition
    from kbroker.schemas import wire

    Row = wire.ProduceRequest.PartitionProduceData

FIRST_ADDING_VERSION = 12
FIRST_ABORTABLE_VERSION = 11


def may_write_transactions(ctx: RequestContext, request: wire.ProduceRequest) -> bool:
    """Whether the client may use the request's transactional id; True if no batch is transactional.

    Where it may not, the whole request is refused, as in Kafka."""
    transactional_id = request.transactional_id
    if ctx.gate is None or transactional_id is None:
        return True
    if may(ctx, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id):
        return True
    return not any(_is_transactional(row.records) for topic in request.topic_data for row in topic.partition_data)


async def verify_batches(
    ctx: RequestContext, transactional_id: str, appends: Iterable[PartitionAppend], pace: Pace
) -> None:
    """Let in the batches of a produce that are part of their producer's transaction.

    Each transactional batch gets its guard or is refused; other batches get no guard."""
    generation = ClientGeneration(ctx.api_version >= FIRST_ADDING_VERSION, ctx.api_version >= FIRST_ABORTABLE_VERSION)
    asked: list[tuple[PartitionAppend, Batch]] = []
    for each in appends:
        await pace
        if not each.is_open:
            continue
        try:
            partition = each.partition()
        except KafkaError:
            continue  # The append says so.
        try:
            batch = _transactional(each.row, partition)
            if batch is None:
                continue
            each.guard = verification.start(batch, generation)
        except KafkaError as error:
            each.refusal = bare(error)
            continue
        if verification.needs_verification(ctx.services, each.guard, generation):
            asked.append((each, batch))
    if asked:
        errors = await verification.verify(ctx.services, transactional_id, [batch for _, batch in asked], generation)
        for (each, _), refusal in zip(asked, errors, strict=True):
            each.refusal = refusal


def _is_transactional(records: memoryview | None) -> bool:
    try:
        return records is not None and read_header(records).is_transactional
    except BatchError:
        return False


def _transactional(row: Row, partition: Partition) -> Batch | None:
    """The batch of a row if it is transactional; errors in a batch are left to the append."""
    if row.records is None:
        return None
    try:
        info = read_header(row.records)
    except BatchError:
        return None
    if not info.is_transactional or info.producer_id < 0:
        return None
    return Batch(partition, info.producer_id, info.producer_epoch, info.base_sequence)
