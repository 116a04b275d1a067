"""Random sets of rules with questions about them, and the answers of Kafka's own authorizer (`Decisions.java`).

python -m tests.security.acl.decisions     record what Apache Kafka's `StandardAuthorizer` decides

The Java program reads lines, and answers each set with a letter for each question, `a` for allowed, `d` for denied:

    settings  super users, whether everyone is allowed what no rule is about
    acl       resource type, name, pattern type, principal, host, operation, permission
    acls end
    may       principal's type and name, address, operation, resource type, name
    any       principal's type and name, address, operation, resource type
    end
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kbroker.metadata.security_image import Acl
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal
from tests.compat.tooling import HERE, compiled, java_command

FILE = Path(__file__).parent / "vectors" / "kafka-4.3.1-decisions.json"
NAMES = ("a", "ab", "abc", "abd", "b", "*", "*a", "é", "hardcode", "hard", "a" * 40)
PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a", "User:a:b", "User:")
CLIENTS = (Principal("User", "a"), Principal("User", "b"), Principal("Group", "a"), Principal("User", "a:b"))
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1")
KINDS = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER)
OPERATIONS = (2, *Operation)


class Case(NamedTuple):
    """A set of rules and questions."""

    super_users: str
    allow_everyone: bool
    acls: Sequence[Acl]
    questions: Sequence[tuple[Principal, str, Operation, ResourceKind, str | None]]
    """No name: about any resource of the kind."""


def random_case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(2, 5))
    kinds = rng.sample(KINDS, rng.randint(1, 2))
    few = rng.sample(OPERATIONS, rng.randint(2, 5))
    acls = [
        Acl(
            rng.choice(kinds),
            rng.choice(names),
            rng.choice((3, 4)),
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS[: rng.choice((1, 4))]),
            rng.choice(few),
            rng.choice((2, 3, 3)),
        )
        for _ in range(rng.choice((0, 1, 2, 4, 8, 16)))
    ]
    asked = [each for each in (*few, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS) if each != 2]
    questions = [
        (
            rng.choice(CLIENTS),
            rng.choice(ADDRESSES),
            Operation(rng.choice(asked)),
            rng.choice(kinds),
            rng.choice((*names, *NAMES, None)),
        )
        for _ in range(10)
    ]
    super_users = rng.choice(("", "", "", "User:b", "Group:a; User:b ;", "User:a:b"))
    # Kafka has no rule twice.
    return Case(super_users, rng.random() < 0.3, list(dict.fromkeys(acls)), questions)


def lines_of(case: Case) -> Iterable[str]:
    """What the Java program reads."""
    yield f"settings\t{case.super_users}\t{str(case.allow_everyone).lower()}"
    for acl in case.acls:
        yield "acl\t" + "\t".join(str(int(each) if isinstance(each, int) else each) for each in acl)
    yield "acls end"
    for principal, address, operation, kind, name in case.questions:
        asked = f"{principal.kind}\t{principal.name}\t{address}\t{int(operation)}\t{int(kind)}"
        yield f"any\t{asked}" if name is None else f"may\t{asked}\t{name}"
    yield "end"


def answers_of_kafka(cases: Iterable[Case], command: Sequence[str]) -> list[str]:
    """What Kafka's authorizer answers, by the command that runs the Java program."""
    text = "\n".join(line for case in cases for line in lines_of(case))
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode().splitlines()


def answers_of_kbroker(case: Case) -> str:
    """What kbroker's authorizer answers."""
    settings = AuthorizerSettings(
        frozenset(each.strip() for each in case.super_users.split(";") if each.strip()), case.allow_everyone
    )
    authorizer = StandardAuthorizer(settings, case.acls)
    answers = []
    for principal, address, operation, kind, name in case.questions:
        if name is None:
            allowed = authorizer.is_authorized_for_any(principal, address, operation, kind)
        else:
            allowed = authorizer.is_authorized(principal, address, operation, kind, name)
            rule = authorizer.explain(principal, address, operation, kind, name)
            says_so = "permissionType=ALLOW" in rule or rule in ("SuperUser", "DefaultAllow")
            assert allowed == says_so, rule
        answers.append("a" if allowed else "d")
    return "".join(answers)


def java() -> list[str]:
    """The command that runs the Java program."""
    return java_command("Decisions", classes=compiled(HERE / "java" / "Decisions.java"))


if __name__ == "__main__":
    FILE.write_text(json.dumps(answers_of_kafka(map(random_case, range(4000)), java()), indent=0) + "\n")
