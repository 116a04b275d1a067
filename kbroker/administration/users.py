"""Users who log in with a password (SCRAM)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.errors import refuse
from kbroker.schemas import wire
from kbroker.security.scram import BY_NAME, ScramMechanism

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin


async def describe_users(
    admin: Admin, users: Iterable[str]
) -> list[wire.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]:
    """Users with their mechanisms, all unless some are named; a row for each, with its error."""
    request = wire.DescribeUserScramCredentialsRequest
    asked = request(users=[request.UserName(name=user) for user in dict.fromkeys(users)])
    answer = await admin.ask(wire.DescribeUserScramCredentialsResponse, asked)
    refuse(answer.error_code, answer.error_message)
    return answer.results


async def set_password(admin: Admin, row: wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> None:
    """Give a user a password: see `scram_changes.salted_row`."""
    await _alter(admin, wire.AlterUserScramCredentialsRequest(upsertions=[row]))


async def remove_passwords(admin: Admin, user: str, mechanisms: Sequence[str]) -> None:
    """Take a user's passwords away, one mechanism after the other, as a request may name a user once."""
    request = wire.AlterUserScramCredentialsRequest
    for name in dict.fromkeys(mechanisms):
        await _alter(admin, request(deletions=[request.ScramCredentialDeletion(name=user, mechanism=BY_NAME[name])]))


async def _alter(admin: Admin, request: wire.AlterUserScramCredentialsRequest) -> None:
    for row in (await admin.ask_controller(wire.AlterUserScramCredentialsResponse, request)).results:
        refuse(row.error_code, row.error_message)


def mechanism_name(mechanism: int) -> str:
    """A mechanism as SASL calls it."""
    return ScramMechanism(mechanism).sasl_name if mechanism in set(ScramMechanism) else str(mechanism)
