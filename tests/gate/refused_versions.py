"""Requests about rules, users and tokens, which both clients of `refused_requests` ask; and rows in all versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from kbroker.schemas import schema
from tests.gate.refused_requests import OPEN, Row, Values
from tests.scenarios.wire import struct_fields

_RULE = {
    "resource_type": 2,
    "resource_name": OPEN,
    "resource_pattern_type": 3,
    "principal": "User:x",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_RULES = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
OF_SECURITY: tuple[Row, ...] = (
    Row("DescribeAcls", 3, _RULES),
    Row("CreateAcls", 3, {"creations": [_RULE, {**_RULE, "resource_name": ""}]}),
    Row("DeleteAcls", 3, {"filters": [_RULES, {**_RULES, "operation": 99}]}),
    # Asked for all users, Kafka does not answer a client that may not.
    Row("DescribeUserScramCredentials", 0, {"users": [{"name": "u"}]}),
    Row(
        "AlterUserScramCredentials",
        0,
        {
            "deletions": [{"name": "u", "mechanism": 1}],
            "upsertions": [
                {"name": "v", "mechanism": 2, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 64}
            ],
        },
    ),
    Row("CreateDelegationToken", 3, {"renewers": [], "max_lifetime_ms": -1}),
    Row("RenewDelegationToken", 2, {"hmac": b"hmac", "renew_period_ms": -1}),
    Row("ExpireDelegationToken", 2, {"hmac": b"hmac", "expiry_time_period_ms": -1}),
    Row("DescribeDelegationToken", 3, {"owners": None}),
)


_OPENS_SESSION = "ShareFetch"
"""Its session is that of a member: each version has one of its own."""
_IN_SESSION = "ShareAcknowledge"
"""What this is answered depends on the requests of its session before it: it is asked in one version."""


def in_all_versions(rows: Sequence[Row]) -> list[Row]:
    """The rows, and each behind itself in every other version whose request has all fields that it gives."""
    found = []
    for row in rows:
        table = schema(f"{row.api}Request")
        others = [] if row.api == _IN_SESSION else list(parse_versions(table.versions))
        found.append(row)
        found += [_as_of(row, each) for each in others if _has(table, table.fields, row.values, each)]
    named = {row.name: row for row in (*reversed(found), *rows)}
    return [named[name] for name in dict.fromkeys(row.name for row in found)]


def _as_of(row: Row, version: int) -> Row:
    if row.api != _OPENS_SESSION or version == row.version:
        return row._replace(version=version)
    member = str(row.values["member_id"])
    return row._replace(version=version, values={**row.values, "member_id": f"{member[:-1]}{version}"})


def _has(table: MessageSchema, fields: Iterable[Field], values: Values, version: int) -> bool:
    known = {field.name: field for field in fields if version in parse_versions(field.versions)}
    for name, value in values.items():
        if name not in known:
            return False
        field = known[name]
        if value is None and version not in parse_versions(field.nullable):
            return False
        if field.is_struct and value is not None:
            inner = struct_fields(table, field)
            if not all(_has(table, inner, each, version) for each in (value if field.is_array else [value])):
                return False
    return True
