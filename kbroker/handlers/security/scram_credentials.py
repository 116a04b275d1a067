"""DescribeUserScramCredentials (API 50): v0.  AlterUserScramCredentials (API 51): v0.

The broker never gets a password here: clients salt it, and what is kept of that is no login.  Rules and texts are
Kafka's: `kbroker.security.scram_changes`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError, bare
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.security_image import ScramKey
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.security.scram import ScramMechanism
from kbroker.security.scram_changes import ScramDraft, ScramUpsertion, absence

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
NOT_THERE = "Attempt to describe a user credential that does not exist: "


async def handle_describe_user_scram_credentials(
    ctx: RequestContext, request: wire.DescribeUserScramCredentialsRequest
) -> Struct:
    """DescribeUserScramCredentials v0: mechanisms and iterations of the named users, or of all."""
    response = wire.DescribeUserScramCredentialsResponse
    try:
        require_cluster(ctx, Operation.DESCRIBE)
    except KafkaError as error:
        # Without words, and with a row for no user, as Kafka's.
        refused = response.DescribeUserScramCredentialsResult(error_code=error.code, error_message=None)
        return response(error_code=error.code, error_message=None, results=[refused])
    pace = ctx.services.slices.pace()
    scram = ctx.services.metadata_cache.image.security.scram
    named = Counter(each.name for each in request.users or ()) or Counter({key.user: 1 for key in scram})
    results = []
    for user, count in named.items():
        await pace
        result = response.DescribeUserScramCredentialsResult(user=user)
        results.append(result)
        if count > 1:
            result.error_code, result.error_message = ErrorCode.DUPLICATE_RESOURCE, TWICE + user
            continue
        result.credential_infos = [
            response.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism in ScramMechanism
            if (credential := scram.get(ScramKey(user, mechanism))) is not None
        ]
        if not result.credential_infos:
            result.error_code, result.error_message = ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE + user
    return response(results=results)


async def handle_alter_user_scram_credentials(
    ctx: RequestContext, request: wire.AlterUserScramCredentialsRequest
) -> Struct:
    """AlterUserScramCredentials v0: a result for each user."""
    response = wire.AlterUserScramCredentialsResponse
    pace = ctx.services.slices.pace()
    results: dict[str, KafkaError | None] = {}
    try:
        require_cluster(ctx, Operation.ALTER)
        draft = ScramDraft(ctx.services.metadata_cache.image.security.scram)
        for row in request.deletions:
            await pace
            draft.delete(ScramKey(row.name, row.mechanism))
        for each in request.upsertions:
            await pace
            key = ScramKey(each.name, each.mechanism)
            draft.upsert(ScramUpsertion.of(key, each.iterations, bytes(each.salt), bytes(each.salted_password)))
        alteration = draft.alteration()
        gone = await ctx.services.administration.alter_security(alteration)
        for key in alteration.changes:
            await pace
            results[key.user] = absence() if key.user in gone else None
        results |= draft.refused
    except KafkaError as error:
        for row in request.deletions:
            await pace
            results[row.name] = bare(error)
        for each in request.upsertions:
            await pace
            results[each.name] = bare(error)
    answers = []
    for user, refusal in results.items():
        await pace
        answers.append(
            response.AlterUserScramCredentialsResult(
                user=user,
                error_code=0 if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
            )
        )
    return response(results=answers)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, handle_describe_user_scram_credentials),
    Handler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, handle_alter_user_scram_credentials),
)
