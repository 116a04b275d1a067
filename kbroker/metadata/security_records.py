"""The records of a KRaft cluster's metadata that concern security (KIP-631, KIP-801, KIP-900)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kbroker.metadata.security_image import (
    Acl,
    DelegationToken,
    ScramCredential,
    ScramKey,
    SecurityDelta,
    SecurityImage,
)
from kbroker.schemas import wire

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class SecurityDraft:
    """What records have changed so far."""

    def __init__(self) -> None:
        self._acls: dict[bytes, Acl | None] = {}
        self._scram: dict[ScramKey, ScramCredential | None] = {}
        self._tokens: dict[str, DelegationToken | None] = {}

    def take(self, value: object) -> bool:
        """Apply a record; whether it concerns security."""
        match value:
            case wire.AccessControlEntryRecord():
                self._acls[value.id] = Acl(
                    value.resource_type,
                    value.resource_name,
                    value.pattern_type,
                    value.principal,
                    value.host,
                    value.operation,
                    value.permission_type,
                )
            case wire.RemoveAccessControlEntryRecord():
                self._acls[value.id] = None
            case wire.UserScramCredentialRecord():
                self._scram[ScramKey(value.name, value.mechanism)] = ScramCredential(
                    bytes(value.salt), bytes(value.stored_key), bytes(value.server_key), value.iterations
                )
            case wire.RemoveUserScramCredentialRecord():
                self._scram[ScramKey(value.name, value.mechanism)] = None
            case wire.DelegationTokenRecord():
                self._tokens[value.token_id] = DelegationToken(
                    value.token_id,
                    value.owner,
                    value.requester,
                    tuple(value.renewers),
                    value.issue_timestamp,
                    value.max_timestamp,
                    value.expiration_timestamp,
                )
            case wire.RemoveDelegationTokenRecord():
                self._tokens[value.token_id] = None
            case _:
                return False
        return True

    def delta(self, image: SecurityImage) -> SecurityDelta:
        """What differs from the image."""
        return SecurityDelta(
            _differing(self._acls, image.acls),
            _differing(self._scram, image.scram),
            _differing(self._tokens, image.tokens),
        )


def records_of(
    image: SecurityImage,
) -> list[wire.AccessControlEntryRecord | wire.UserScramCredentialRecord | wire.DelegationTokenRecord]:
    """The records that make the image."""
    return [
        *(wire.AccessControlEntryRecord(id=acl_id, **acl._asdict()) for acl_id, acl in image.acls.items()),
        *(
            wire.UserScramCredentialRecord(
                name=key.user,
                mechanism=key.mechanism,
                salt=one.salt,
                stored_key=one.stored_key,
                server_key=one.server_key,
                iterations=one.iterations,
            )
            for key, one in image.scram.items()
        ),
        *(
            wire.DelegationTokenRecord(
                owner=one.owner,
                requester=one.requester,
                renewers=list(one.renewers),
                issue_timestamp=one.issued_ms,
                max_timestamp=one.max_ms,
                expiration_timestamp=one.expires_ms,
                token_id=one.token_id,
            )
            for one in image.tokens.values()
        ),
    ]


def _differing(changes: Mapping[_Key, _Value | None], old: Mapping[_Key, _Value]) -> dict[_Key, _Value | None]:
    return {key: value for key, value in changes.items() if value != old.get(key)}
