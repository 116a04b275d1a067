"""Transactions that are open: aborted in their producer's place, which is fenced by that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.administration.admin import TRANSACTION
from kbroker.console.download import time_of
from kbroker.console.manage.context import plural
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.errors import refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

ONGOING = "Ongoing"
NO_PRODUCER = -1


async def _described(context: Context, name: str) -> wire.DescribeTransactionsResponse.TransactionState:
    request = wire.DescribeTransactionsRequest(transactional_ids=[name])
    answer = await context.client.ask_coordinator(wire.DescribeTransactionsResponse, request, name, TRANSACTION)
    (state,) = answer.transaction_states
    refuse(state.error_code)
    return state


async def plan_abort(context: Context, fields: Fields) -> Plan:
    """What is taken back, and what becomes of the producer."""
    name = fields.text("id")
    context.require(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)
    state = await _described(context, name)
    if state.transaction_state != ONGOING:
        raise BadParameterError(f"{name} has no open transaction: it is {state.transaction_state}")
    rows = sorted((topic.topic, index) for topic in state.topics for index in topic.partitions)
    return Plan(
        f"Abort the transaction of {name}",
        [
            f"The transaction that is open since {time_of(state.transaction_start_time_ms)} is aborted: what it has "
            f"written to {plural(len(rows), 'partition')} is never shown to readers of committed records, who go on.",
            "Its producer, where it still runs, is fenced: its next request fails, and it has to begin anew.",
        ],
        {"id": name},
        [state.producer_id, state.producer_epoch, state.transaction_start_time_ms],
        table=Table(("Topic", "Partition"), rows),
        confirm=name,
        button="Abort it",
    )


async def _fence(context: Context, name: str, timeout_ms: int) -> None:
    request = wire.InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_PRODUCER,
    )
    answer = await context.client.ask_coordinator(wire.InitProducerIdResponse, request, name, TRANSACTION)
    refuse(answer.error_code)


async def abort(context: Context, fields: Fields, plan: Plan) -> Done:
    """As a new producer of that id does, before it begins."""
    name = fields.text("id")
    state = await _described(context, name)
    await context.client.patiently(partial(_fence, context, name, state.transaction_timeout_ms))
    return Done([f"The transaction of {name} is aborted."])


ACTIONS = {"transaction.abort": Action(plan_abort, abort)}
