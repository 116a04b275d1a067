"""Requests that make, describe and delete rules, one after the other, with what Apache Kafka answers to each.

python -m tests.security.acl.acl_requests PORT OTHER     record what Apache Kafka answers there; OTHER has no authorizer

Kafka needs `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer`, a super user
`User:ANONYMOUS`, and no rules yet.  Rules that are made in one request are described in an order of Kafka's own, so
answers are compared without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.compat.waiting import wait_for
from tests.scenarios.session import Session

FILE = Path(__file__).parent / "vectors" / "kafka-4.3.1-acl-requests.json"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Values = dict[str, Any]
VERSIONS = (1, 2, 3)
EVERYTHING: Values = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def rule(**other: Any) -> Values:
    """A rule that is like all others but for what is given."""
    plain = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {**plain, **other}


MADE = (
    rule(),
    rule(resource_pattern_type=4),
    rule(resource_name="*"),
    rule(resource_name="*", resource_pattern_type=4),
    rule(principal="User:*", operation=2),
    rule(permission_type=2, host="10.0.0.1"),
    rule(resource_type=3, resource_name="g"),
    rule(resource_type=4, resource_name="kafka-cluster", operation=9),
    rule(resource_type=5, resource_name="id", operation=15),
    rule(resource_type=6, resource_name="token", operation=8),
    rule(resource_type=7, resource_name="User:bob", operation=13),
    rule(principal="Group:of:three"),
    rule(resource_name="top", resource_pattern_type=4),
    rule(resource_name="topic", operation=12),
)
REFUSED: Mapping[str, Values] = {
    "unknown resource type": rule(resource_type=0),
    "any resource type": rule(resource_type=1),
    "resource type of the future": rule(resource_type=99),
    "unknown operation": rule(operation=0),
    "any operation": rule(operation=1),
    "operation of the future": rule(operation=99),
    "unknown permission": rule(permission_type=0),
    "any permission": rule(permission_type=1),
    "permission of the future": rule(permission_type=99),
    "unknown pattern": rule(resource_pattern_type=0),
    "any pattern": rule(resource_pattern_type=1),
    "match pattern": rule(resource_pattern_type=2),
    "pattern of the future": rule(resource_pattern_type=99),
    "empty name": rule(resource_name=""),
    "empty name of a group": rule(resource_type=3, resource_name=""),
    "cluster of another name": rule(resource_type=4, resource_name="cluster"),
    "cluster of no name": rule(resource_type=4, resource_name=""),
    "cluster of all names": rule(resource_type=4, resource_name="*"),
    "principal without a type": rule(principal="alice"),
    "principal without a name": rule(principal="User:"),
    "principal of no type": rule(principal=":alice"),
    "no principal": rule(principal=""),
    "no host": rule(host=""),
    "host that is a name": rule(host="example.org"),
    "operation that the resource does not have": rule(resource_type=3, resource_name="g2", operation=9),
    "long name": rule(resource_name="n" * 9000),
}
FILTERS: Mapping[str, Values] = {
    "everything": {},
    "a type": {"resource_type_filter": 3},
    "a name": {"resource_name_filter": "t"},
    "an empty name": {"resource_name_filter": ""},
    "a name, literal": {"resource_name_filter": "t", "pattern_type_filter": 3},
    "a name, prefixed": {"resource_name_filter": "t", "pattern_type_filter": 4},
    "a name, match": {"resource_name_filter": "topical", "pattern_type_filter": 2},
    "match without a name": {"pattern_type_filter": 2},
    "all names, literal": {"resource_name_filter": "*", "pattern_type_filter": 3},
    "all names, match": {"resource_name_filter": "*", "pattern_type_filter": 2},
    "a principal": {"principal_filter": "User:alice"},
    "another case of a principal": {"principal_filter": "user:alice"},
    "all principals": {"principal_filter": "User:*"},
    "a host": {"host_filter": "10.0.0.1"},
    "a host that has only general rules": {"host_filter": "10.0.0.2"},
    "an operation": {"operation": 3},
    "all operations": {"operation": 2},
    "a permission": {"permission_type": 2},
    "all at once": {
        "resource_type_filter": 2,
        "resource_name_filter": "t",
        "pattern_type_filter": 3,
        "principal_filter": "User:alice",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    },
    "nothing": {"principal_filter": "User:nobody"},
    "unknown type": {"resource_type_filter": 0},
    "type of the future": {"resource_type_filter": 99},
    "unknown pattern": {"pattern_type_filter": 0},
    "pattern of the future": {"pattern_type_filter": 99},
    "unknown operation": {"operation": 0},
    "operation of the future": {"operation": 99},
    "unknown permission": {"permission_type": 0},
    "permission of the future": {"permission_type": 99},
}


def run(session: Session) -> None:
    """Ask everything."""
    session.ask("describe nothing", "DescribeAcls", 3, **EVERYTHING)
    session.ask("make none", "CreateAcls", 3, creations=[])
    session.ask("make", "CreateAcls", 3, creations=list(MADE))
    session.ask("make again", "CreateAcls", 3, creations=[rule(), rule(), rule(resource_name="once")])
    for name, values in REFUSED.items():
        for version in VERSIONS:
            session.ask(f"make v{version}, {name}", "CreateAcls", version, creations=[values])
            session.redial()
    session.ask(
        "make some that are refused among others",
        "CreateAcls",
        3,
        creations=[rule(resource_name=""), rule(), rule(resource_type=4, resource_name="x", operation=9)],
    )

    def is_there() -> bool:
        found = session.quietly("DescribeAcls", 3, **{**EVERYTHING, "resource_name_filter": "once"})
        return len(found.resources) == 1

    wait_for(is_there, "the rules to be in force")
    for name, values in FILTERS.items():
        asked = {**EVERYTHING, **values}
        for version in VERSIONS:
            session.ask(f"describe v{version}, {name}", "DescribeAcls", version, **asked)
            session.redial()
    session.ask("delete by no filter", "DeleteAcls", 3, filters=[])
    for name, values in FILTERS.items():
        asked = {**EVERYTHING, **values}
        if any(value in (0, 99) for value in values.values()) or name == "nothing":
            for version in VERSIONS:
                session.ask(f"delete v{version}, {name}", "DeleteAcls", version, filters=[asked])
                session.redial()
    wrong = {**EVERYTHING, "resource_name_filter": "", "resource_type_filter": 4}
    session.ask("delete a cluster without a name", "DeleteAcls", 3, filters=[wrong])
    session.ask(
        "delete twice",
        "DeleteAcls",
        3,
        filters=[
            {**EVERYTHING, "resource_type_filter": 3},
            {**EVERYTHING, "resource_type_filter": 3, "resource_name_filter": "g"},
            {**EVERYTHING, "principal_filter": "Group:of:three"},
        ],
    )
    session.ask("delete a name, v1", "DeleteAcls", 1, filters=[{**EVERYTHING, "resource_name_filter": "topic"}])
    once = {**EVERYTHING, "resource_name_filter": "once"}
    session.ask("delete a name, v2", "DeleteAcls", 2, filters=[once])
    session.ask("delete all", "DeleteAcls", 3, filters=[EVERYTHING])

    def is_empty() -> bool:
        return not session.quietly("DescribeAcls", 3, **EVERYTHING).resources

    wait_for(is_empty, "the rules to be gone")
    session.ask("describe what is left", "DescribeAcls", 3, **EVERYTHING)


def without_authorizer(session: Session) -> None:
    """What a broker without an authorizer answers."""
    for version in VERSIONS:
        session.ask(f"describe v{version} without", "DescribeAcls", version, **EVERYTHING)
        session.ask(f"make v{version} without", "CreateAcls", version, creations=[rule(), rule(resource_name="")])
        session.ask(f"delete v{version} without", "DeleteAcls", version, filters=[EVERYTHING, EVERYTHING])


def answers_of(port: int, with_authorizer: bool = True) -> dict[str, Any]:
    """What the broker on that port answers."""
    session = Session(port)
    try:
        if with_authorizer:
            run(session)
        else:
            without_authorizer(session)
        return dict(session.answers)
    finally:
        session.close()


def save(answers: Mapping[str, Any]) -> None:
    """Write the record, a line for each answer."""
    lines = [f"  {json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    save({**answers_of(int(sys.argv[1])), **answers_of(int(sys.argv[2]), with_authorizer=False)})
