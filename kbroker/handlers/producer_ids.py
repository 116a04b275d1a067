"""InitProducerId: v0-v5.

Gives a producer the id and epoch that let the log tell its retries from new batches.

- Without a transactional id (idempotent producers) every answer is a fresh id at epoch 0.  v3+ requests may name the id
  and epoch that the producer has; Kafka checks that both or neither are given and then hands out a fresh id as well: it
  keeps no state for idempotent producers, which bump their epochs themselves (KIP-360).
- An empty transactional id is INVALID_REQUEST.
- With a transactional id: transactions are not served yet, and the answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
  It is the one code that every client takes as final: librdkafka retries UNSUPPORTED_VERSION and
  COORDINATOR_NOT_AVAILABLE without end, and so hangs in init_transactions() until its timeout.  The answer has no room
  for a reason, so the log tells it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.table import Handler
from kbroker.log_output import RateLimitedLog
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

logger = logging.getLogger("kbroker.handlers")
complaints = RateLimitedLog(logger)


async def handle_init_producer_id(ctx: RequestContext, request: wire.InitProducerIdRequest) -> Struct:
    """InitProducerId v0-v5; see the module's docstring."""
    if request.transactional_id is not None:
        if request.transactional_id == "":
            return _failed(ErrorCode.INVALID_REQUEST)
        complaints.warning(
            (ctx.client_id, request.transactional_id),
            "client %s at %s wants transactional id %r: kbroker does not implement transactions yet",
            ctx.client_id,
            ctx.connection.peer_host,
            request.transactional_id,
        )
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await ctx.services.producer_ids.next_id()
    except KafkaError as error:
        logger.error("cannot give a producer id to %s: %s", ctx.client_id, error)
        # Kafka's answer while it has no block of ids; clients ask again.
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> Struct:
    return wire.InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.INIT_PRODUCER_ID, 0, 5, handle_init_producer_id),)
