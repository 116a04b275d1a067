"""Who may change something, and that what is done is what was shown.

    POST /console/api/plan      {"action": …, "fields": {…}}                what would happen, with a token
    POST /console/api/perform   {"action": …, "fields": {…}, "token": …}    does it; 409 with the new plan where it is
                                                                            another by now

A body has up to SMALL_BODY_BYTES.  The action `produce` may have up to LARGE_BODY_BYTES, at plan/produce and
perform/produce.

A password is beside the fields, as `secret`, and in no plan.  A request takes `Content-Type: application/json` and
`X-Kbroker-Console: 1`, which a page of another origin cannot send.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console import guard
from kbroker.console.manage.actions import ACTIONS
from kbroker.console.manage.context import Context
from kbroker.console.manage.fields import Fields
from kbroker.console.manage.json_body import read_body
from kbroker.console.manage.plan import Plan, Table, token_of
from kbroker.console.parameters import BadParameterError, NotShownError, NotThereError
from kbroker.errors import RETRIABLE, ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.console.manage.plan import Done
    from kbroker.console.parts import ConsoleParts
    from kbroker.metrics.http_messages import Request
    from kbroker.security.principal import Principal

logger = logging.getLogger("kbroker.console")

PLAN, PERFORM = "plan", "perform"
LARGE = "produce"
"""The action whose fields may be large, and the last part of its paths."""
SMALL_BODY_BYTES = 256 << 10
LARGE_BODY_BYTES = 8 << 20
MOST_AT_ONCE = 16
_NOT_ALLOWED = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))
_NOT_THERE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A plan as a viewer gets it."""

    action: str
    title: str
    sentences: object
    warnings: object
    table: Table | None
    fields: object
    confirm: str
    button: str
    token: str


@dataclass(frozen=True, slots=True)
class Refused:
    """`code`: Kafka's, empty where it is none of its; `plan`: what would happen instead."""

    error: str
    code: str = ""
    plan: Shown | None = None


def body_limit(path: str) -> int:
    """How many bytes a body for a path of the console may have; more is answered with 413."""
    return LARGE_BODY_BYTES if path.endswith((f"/{PLAN}/{LARGE}", f"/{PERFORM}/{LARGE}")) else SMALL_BODY_BYTES


class ChangeRequests:
    """`why_closed`: why nothing can be changed by viewers who prove nothing, empty where it can; `is_open`: whether
    anything can at all (`kbroker.console.manage`)."""

    def __init__(self, parts: ConsoleParts, *, is_open: bool, why_closed: str) -> None:
        self._parts = parts
        self._is_open = is_open
        self._why_closed = why_closed
        self._under_way = 0

    def why_not(self, request: Request) -> str:
        """Why a viewer cannot change anything; empty where it can, as far as its rights go."""
        if not self._is_open:
            return "Nothing can be changed here: kbroker.console.manage is false."
        return "" if request.viewer is not None else self._why_closed

    async def ask(self, name: str, request: Request) -> tuple[int, object]:
        """The answer to a POST to PLAN or PERFORM, LARGE behind it or not: its status, and what becomes JSON."""
        reason = self.why_not(request)
        if reason:
            return 403, Refused(reason)
        if guard.foreign(request) or request.console != "1":
            return 403, Refused("only the console's own pages may ask for changes")
        if request.content_type.partition(";")[0].strip().lower() != "application/json":
            return 415, Refused("a change is asked for in application/json")
        if self._under_way >= MOST_AT_ONCE:
            return 503, Refused("Too many changes are under way; try again.")
        self._under_way += 1
        try:
            return await self._answer(name, request)
        except BadParameterError as error:
            return 400, Refused(str(error))
        except NotThereError as error:
            return 404, Refused(str(error))
        except NotShownError as error:
            return 403, Refused(str(error))
        except KafkaError as error:
            return _status_of(error.code), Refused(str(error), error.code.name)
        finally:
            self._under_way -= 1

    async def _answer(self, name: str, request: Request) -> tuple[int, object]:
        asked = await asyncio.get_running_loop().run_in_executor(None, read_body, request.body)
        action = ACTIONS.get(str(asked.get("action")))
        if action is None:
            raise NotThereError(f"there is no such action; there are {', '.join(ACTIONS)}")
        kind = str(asked["action"])
        name, _, only = name.partition("/")
        if only and kind != only:
            raise BadParameterError(f"{name}/{only} is for the action {only} alone")
        fields = Fields(asked.get("fields") or {}, str(asked.get("secret") or ""))
        parts = self._parts.seen_by(request.viewer, request.peer)
        principal = parts.client.principal
        context = Context(parts, parts.client)
        try:
            plan = await action.plan(context, fields)
            # In a thread, as a plan may hold megabytes of records.
            token = await asyncio.get_running_loop().run_in_executor(None, token_of, kind, principal, plan)
            if name == PLAN:
                return 200, _shown(kind, plan, token)
            if not hmac.compare_digest(token.encode(), str(asked.get("token")).encode("utf-8", "replace")):
                return 409, Refused("It is no longer as it was shown.", plan=_shown(kind, plan, token))
            done = await action.perform(context, fields, plan)
        finally:
            parts.close()
        _note(principal, request.peer, kind, plan, done)
        return 200, done


def _shown(action: str, plan: Plan, token: str) -> Shown:
    return Shown(
        action, plan.title, plan.sentences, plan.warnings, plan.table, plan.fields, plan.confirm, plan.button, token
    )


def _note(principal: Principal, host: str, action: str, plan: Plan, done: Done) -> None:
    outcome = "in part" if done.failures and done.sentences else "not" if done.failures else "done"
    # Ids of groups and names of users may hold line ends.
    title = "".join(each if each.isprintable() else "?" for each in plan.title)
    logger.info("%s at %s: %s (%s): %s", principal, host, title, action, outcome)


def _status_of(code: ErrorCode) -> int:
    if code in _NOT_ALLOWED:
        return 403
    if code in _NOT_THERE:
        return 404
    return 503 if code in RETRIABLE or code is ErrorCode.NETWORK_EXCEPTION else 400
