"""What an action would do, in words, and what its plan stands on."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

# Tokens are of this process alone.
_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that a plan shows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Plan:
    """`fields`: those of the action with all that was left open filled in, to be sent back; `basis`: the state that
    must still be the same when it is done; `confirm`: what a viewer types first, where something is gone for good."""

    title: str
    sentences: Sequence[str]
    fields: Mapping[str, object]
    basis: object = None
    warnings: Sequence[str] = ()
    table: Table | None = None
    confirm: str = ""
    button: str = "Do it"


def plan_without_topic(
    title: str,
    sentences: Sequence[str],
    group_id: str,
    topic: str,
    rows: Sequence[tuple[int, int]],
    shown: str,
    button: str,
) -> Plan:
    """That a group loses what it has of a topic: `rows` of partition and offset, which the table calls `shown`."""
    table = Table(("Partition", shown), rows)
    fields = {"id": group_id, "topic": topic}
    return Plan(title, sentences, fields, [list(row) for row in rows], table=table, confirm=topic, button=button)


@dataclass(frozen=True, slots=True)
class Done:
    """What has happened."""

    sentences: Sequence[str]
    table: Table | None = None
    failures: Sequence[str] = field(default=())


@dataclass(frozen=True, slots=True)
class Action:
    """`plan` changes nothing; `perform` does what the plan of the same fields says.  Both raise KafkaError,
    BadParameterError, NotThereError."""

    plan: Callable[[Context, Fields], Awaitable[Plan]]
    perform: Callable[[Context, Fields, Plan], Awaitable[Done]]


def token_of(action: str, principal: tuple[str, str], plan: Plan) -> str:
    """What proves that a viewer has seen this plan."""
    said = hmac.new(_KEY, digestmod=hashlib.sha256)
    # In pieces, as a plan may have megabytes of records.
    for piece in json.JSONEncoder(sort_keys=True, default=_plain).iterencode(
        [action, principal, plan.fields, plan.basis]
    ):
        said.update(piece.encode("utf-8", "surrogatepass"))
    return said.hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} is no part of a plan")
