"""Users who log in with a password (SCRAM)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbroker.console.manage.plan import Action, Done, Plan
from kbroker.console.parameters import BadParameterError, NotThereError
from kbroker.errors import refuse
from kbroker.metadata.security_image import ScramKey
from kbroker.schemas import wire
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.security.scram import BY_NAME, LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism
from kbroker.security.scram_changes import salted_row

if TYPE_CHECKING:
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

MECHANISMS = tuple(reversed(BY_NAME))


def _mechanisms_of(context: Context, user: str) -> list[str]:
    scram = context.parts.services.metadata_cache.image.security.scram
    return sorted(ScramMechanism(key.mechanism).sasl_name for key in scram if key.user == user)


async def plan_password(context: Context, fields: Fields) -> Plan:
    """A new user, or another password of one that is there."""
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    user = fields.text("name")
    mechanism = fields.choice("mechanism", MECHANISMS)
    iterations = fields.number("iterations", LEAST_ITERATIONS, LEAST_ITERATIONS, MOST_ITERATIONS)
    if not fields.secret:
        raise BadParameterError("the password is missing")
    known = _mechanisms_of(context, user)
    sentences = [
        f"The user {user} gets another password for {mechanism}; the one before is no login any more."
        if mechanism in known
        else f"The user {user} can log in with {mechanism}."
    ]
    others = [each for each in known if each != mechanism]
    if others:
        sentences.append(f"Its password for {', '.join(others)} stays.")
    sentences.append("Brokers get the password salted, and what they keep of it is no login.")
    return Plan(
        f"Set the password of {user}",
        sentences,
        {"name": user, "mechanism": mechanism, "iterations": iterations},
        known,
        [f"{user} has no rights until ACLs give some."] * (not known and context.parts.services.authorizer is not None),
        button="Set it",
    )


async def set_password(context: Context, fields: Fields, plan: Plan) -> Done:
    """The password is salted in a thread: that takes milliseconds."""
    user, name = fields.text("name"), fields.choice("mechanism", MECHANISMS)
    mechanism = BY_NAME[name]
    iterations = fields.number("iterations", LEAST_ITERATIONS, LEAST_ITERATIONS, MOST_ITERATIONS)
    loop = asyncio.get_running_loop()
    row = await loop.run_in_executor(None, salted_row, user, mechanism, fields.secret, iterations)
    await _alter(context, wire.AlterUserScramCredentialsRequest(deletions=[], upsertions=[row]))
    await context.settle(lambda image: ScramKey(user, mechanism) in image.security.scram)
    return Done([f"The user {user} logs in with {name}."])


async def _alter(context: Context, request: wire.AlterUserScramCredentialsRequest) -> None:
    answer = await context.client.ask_controller(wire.AlterUserScramCredentialsResponse, request)
    for row in answer.results:
        refuse(row.error_code, row.error_message)


async def plan_removal(context: Context, fields: Fields) -> Plan:
    """All passwords of a user, or the one of a mechanism."""
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    user, chosen = fields.text("name"), fields.text("mechanism", "")
    known = _mechanisms_of(context, user)
    gone = [each for each in known if chosen in ("", each)]
    if not gone:
        raise NotThereError(f"there is no user {user}" + (f" with {chosen}" if chosen and known else ""))
    own = fields.text("name") == _own_name(context)
    return Plan(
        f"Remove the user {user}",
        [
            f"{user} cannot log in with {', '.join(gone)} any more.",
            "Where it is logged in it stays, until its sessions end (connections.max.reauth.ms). Its ACLs stay.",
        ],
        {"name": user, "mechanism": chosen or None},
        known,
        ["This is you: the console will ask for another user."] * own,
        confirm=user,
        button="Remove it",
    )


def _own_name(context: Context) -> str:
    return context.client.principal.name


async def remove(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_removal`."""
    user, chosen = fields.text("name"), fields.text("mechanism", "")
    request = wire.AlterUserScramCredentialsRequest
    for name in [each for each in _mechanisms_of(context, user) if chosen in ("", each)]:
        deletion = request.ScramCredentialDeletion(name=user, mechanism=BY_NAME[name])
        await _alter(context, request(deletions=[deletion], upsertions=[]))
    await context.settle(
        lambda image: (
            not any(
                key.user == user and chosen in ("", ScramMechanism(key.mechanism).sasl_name)
                for key in image.security.scram
            )
        )
    )
    return Done([f"The user {user} is removed."])


ACTIONS = {
    "user.password": Action(plan_password, set_password),
    "user.remove": Action(plan_removal, remove),
}
