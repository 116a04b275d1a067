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
from kbroker.protocol.messages import Message
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


def records_of(image: SecurityImage) -> list[Message]:
    """The records that make the image."""
    return records_of_changes(SecurityDelta(image.acls, image.scram, image.tokens))


def records_of_changes(delta: SecurityDelta) -> list[Message]:
    """The records that make a change."""
    return [
        *(_acl_record(acl_id, acl) for acl_id, acl in delta.acls.items()),
        *(_scram_record(key, credential) for key, credential in delta.scram.items()),
        *(_token_record(token_id, token) for token_id, token in delta.tokens.items()),
    ]


def _acl_record(acl_id: bytes, acl: Acl | None) -> Message:
    if acl is None:
        return wire.RemoveAccessControlEntryRecord(id=acl_id)
    return wire.AccessControlEntryRecord(id=acl_id, **acl._asdict())


def _scram_record(key: ScramKey, credential: ScramCredential | None) -> Message:
    if credential is None:
        return wire.RemoveUserScramCredentialRecord(name=key.user, mechanism=key.mechanism)
    return wire.UserScramCredentialRecord(
        name=key.user,
        mechanism=key.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _token_record(token_id: str, token: DelegationToken | None) -> Message:
    if token is None:
        return wire.RemoveDelegationTokenRecord(token_id=token_id)
    return wire.DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )


def _differing(changes: Mapping[_Key, _Value | None], old: Mapping[_Key, _Value]) -> dict[_Key, _Value | None]:
    return {key: value for key, value in changes.items() if value != old.get(key)}
