"""The tables of ACLs, SCRAM credentials and delegation tokens in the metadata store:

    acls(id, resource_type, resource_name, pattern_type, principal, host, operation, permission_type)
    scram_credentials(user, mechanism, salt, stored_key, server_key, iterations)
    delegation_tokens(token_id, owner, requester, renewers, issued_ms, max_ms, expires_ms)
                                              renewers: JSON, a list of principals

Added to stores that have none when they are opened.  A kbroker that does not know them starts with no authorizer and no
authentication: it refuses the settings that ask for them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from kbroker.metadata.security_image import (
    Acl,
    DelegationToken,
    ScramCredential,
    ScramKey,
    SecurityDelta,
    SecurityImage,
)

CREATE = (
    """
CREATE TABLE IF NOT EXISTS acls (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    resource_type INTEGER NOT NULL,
    resource_name TEXT NOT NULL,
    pattern_type INTEGER NOT NULL,
    principal TEXT NOT NULL,
    host TEXT NOT NULL,
    operation INTEGER NOT NULL,
    permission_type INTEGER NOT NULL
) WITHOUT ROWID
""",
    """
CREATE TABLE IF NOT EXISTS scram_credentials (
    user TEXT NOT NULL,
    mechanism INTEGER NOT NULL,
    salt BLOB NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL,
    iterations INTEGER NOT NULL,
    PRIMARY KEY (user, mechanism)
) WITHOUT ROWID
""",
    """
CREATE TABLE IF NOT EXISTS delegation_tokens (
    token_id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    requester TEXT NOT NULL,
    renewers TEXT NOT NULL,
    issued_ms INTEGER NOT NULL,
    max_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) WITHOUT ROWID
""",
)


def create(connection: sqlite3.Connection) -> None:
    """Make the tables that are missing."""
    for statement in CREATE:
        connection.execute(statement)


def read(connection: sqlite3.Connection) -> SecurityImage:
    """All of it.  ValueError, with the token's id, for renewers that are none."""
    acls = {row[0]: Acl(*row[1:]) for row in connection.execute("SELECT * FROM acls")}
    scram = {
        ScramKey(*row[:2]): ScramCredential(*row[2:]) for row in connection.execute("SELECT * FROM scram_credentials")
    }
    tokens: dict[str, DelegationToken] = {}
    for token_id, owner, requester, text, *times in connection.execute("SELECT * FROM delegation_tokens"):
        try:
            renewers = tuple(map(str, json.loads(text)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the renewers of the delegation token {token_id}: {error}") from error
        tokens[token_id] = DelegationToken(token_id, owner, requester, renewers, *times)
    return SecurityImage(acls, scram, tokens)


def write(connection: sqlite3.Connection, delta: SecurityDelta) -> None:
    """Apply a delta."""
    for acl_id, acl in delta.acls.items():
        _put(connection, "acls", {"id": acl_id}, acl)
    for key, credential in delta.scram.items():
        row = None if credential is None else _credential_row(credential)
        _put(connection, "scram_credentials", {"user": key.user, "mechanism": key.mechanism}, row)
    for token_id, token in delta.tokens.items():
        _put(connection, "delegation_tokens", {"token_id": token_id}, None if token is None else _token_row(token))


def _credential_row(one: ScramCredential) -> tuple[object, ...]:
    return one.salt, one.stored_key, one.server_key, one.iterations


def _token_row(one: DelegationToken) -> tuple[object, ...]:
    return one.owner, one.requester, json.dumps(one.renewers), one.issued_ms, one.max_ms, one.expires_ms


def _put(connection: sqlite3.Connection, table: str, key: Mapping[str, object], row: tuple[object, ...] | None) -> None:
    """Replace the row with that key; None: there is none any more."""
    if row is None:
        connection.execute(f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}", [*key.values()])
        return
    values = [*key.values(), *row]
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
