"""Requests of a client with some rights, to Apache Kafka and to kbroker with the same ACLs.

A round draws ACLs and sets them at both brokers; then requests of all APIs, drawn among the generated ones, are asked
by a user who has logged in, at places that a super user has prepared.

    python -m tests.differential.rights [--seconds N] [--seed N] [API…]      prints what differs; `make check-rights`
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbroker.security.authorizer import Operation, ResourceKind
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.differential.allowed import reason_of
from tests.differential.cases import cases
from tests.differential.comparison import SETTINGS, pairs
from tests.differential.questions import PATIENCE, TOPICS, Questions
from tests.ports import free_port
from tests.scenarios.answer_parts import differing_parts
from tests.scenarios.session import Session

USER, PASSWORD = "ursula", "secret"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)
SECURED = {
    **SETTINGS,
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LITERAL, PREFIXED, ANY = 3, 4, 1
DENY, ALLOW = 2, 3
ALL_OPERATIONS = 2
PER_ROUND = 60
MOST_RULES = 12
DENIED = 0.2
# What others than the user have is drawn as well.
PRINCIPALS = (f"User:{USER}", f"User:{USER}", f"User:{USER}", "User:*", "User:other")
HOSTS = ("*", "*", "*", "127.0.0.1", "127.0.0.2")
TOPIC_PREFIXES = ("shared-", "new-", "changes-", "own-", "", "shared-b")
# The coordinators' topics grow with all that clients do.
ENDS = re.compile(r"name='__\w+'.*\boffset: Kafka \d+, kbroker \d+$")
UNASKED = frozenset({"SaslHandshake", "SaslAuthenticate"})

EVERYTHING = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a round: a case of an API in a version, by its number."""

    api: str
    version: int
    number: int


def drawn_rules(rng: random.Random) -> list[Rule]:
    """Some ACLs on what the places have."""
    return [_rule(rng) for _ in range(rng.randint(0, MOST_RULES))]


def _rule(rng: random.Random) -> Rule:
    kind = rng.choice(
        (ResourceKind.TOPIC,) * 3
        + (ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID, ResourceKind.CLUSTER, ResourceKind.USER)
    )
    pattern, name = LITERAL, "*"
    if kind is ResourceKind.CLUSTER:
        name = "kafka-cluster"
    elif kind is ResourceKind.USER:
        name = rng.choice(("*", USER, "other"))
    elif rng.random() < 0.7:
        prefixes = {
            ResourceKind.TOPIC: TOPIC_PREFIXES[:4],
            ResourceKind.GROUP: ("group-", "g"),
            ResourceKind.TRANSACTIONAL_ID: ("txn-", "t"),
        }
        pattern, name = PREFIXED, rng.choice(prefixes[kind])
        if kind is ResourceKind.TOPIC and rng.random() < 0.4:
            pattern, name = LITERAL, rng.choice(TOPICS)
    operations = list(_operations(kind))
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": rng.choice(PRINCIPALS),
        "host": rng.choice(HOSTS),
        "operation": rng.choice((ALL_OPERATIONS, *operations, *operations)),
        "permission_type": DENY if rng.random() < DENIED else ALLOW,
    }


def _operations(kind: ResourceKind) -> Sequence[int]:
    """Those that Apache Kafka takes for a kind (`AclEntry.supportedOperations`)."""
    read, write, create, delete, alter, describe = (int(each) for each in list(Operation)[:6])
    configs = (int(Operation.DESCRIBE_CONFIGS), int(Operation.ALTER_CONFIGS))
    return {
        ResourceKind.TOPIC: (read, write, create, delete, alter, describe, *configs),
        ResourceKind.GROUP: (read, delete, describe, *configs),
        ResourceKind.TRANSACTIONAL_ID: (write, describe, int(Operation.TWO_PHASE_COMMIT)),
        ResourceKind.CLUSTER: (
            create, alter, describe, int(Operation.CLUSTER_ACTION), *configs, int(Operation.IDEMPOTENT_WRITE),
        ),
        ResourceKind.USER: (int(Operation.CREATE_TOKENS), int(Operation.DESCRIBE_TOKENS)),
    }[kind]  # fmt: skip


def drawn_requests(rng: random.Random, count: int, apis: Sequence[str] = ()) -> list[Asked]:
    """Requests of all APIs alike, or of some, however many cases each has."""
    by_api: dict[str, list[int]] = {}
    for api, version in pairs("4.3.1"):
        if api in apis if apis else api not in UNASKED:
            by_api.setdefault(api, []).append(version)
    found = []
    for api in rng.choices(sorted(by_api), k=count):
        version = rng.choice(by_api[api])
        found.append(Asked(api, version, rng.randrange(len(cases(api, version)))))
    return found


class LoggedIn(Session):
    """A session of the user, also when it dials anew."""

    def __init__(self, port: int, seconds: float) -> None:
        super().__init__(port, seconds)
        self._log_in()

    def redial(self) -> None:
        super().redial()
        self._log_in()

    def _log_in(self) -> None:
        assert self.quietly("SaslHandshake", 1, mechanism="PLAIN").error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert self.quietly("SaslAuthenticate", 2, auth_bytes=token).error_code == 0


class SecuredBroker:
    """A broker of either kind with an authorizer, a listener for a super user and one for the user."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.port = free_port()
        listeners = [f"PLAINTEXT://127.0.0.1:{broker.port}", f"SASL_PLAINTEXT://127.0.0.1:{self.port}"]
        if isinstance(broker, KafkaProcess):
            listeners.append(f"CONTROLLER://127.0.0.1:{broker.controller_port}")
        broker.settings = {**broker.settings, **SECURED, "listeners": ",".join(listeners)}
        self._sessions: list[Session] = []

    def start(self) -> None:
        """With the topics that all requests share."""
        self.broker.start()
        self.questions = Questions(self.broker.port)
        self.admin = Session(self.broker.port, PATIENCE)
        self.user = LoggedIn(self.port, PATIENCE)
        self._sessions = [self.admin, self.user]

    def close(self) -> None:
        """End it, and what is connected to it."""
        for each in self._sessions:
            each.close()
        self.broker.kill()

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """These and no others, known to the broker's authorizer."""
        self.admin.quietly("DeleteAcls", 3, filters=[EVERYTHING])
        made = self.admin.quietly("CreateAcls", 3, creations=list(rules)).results
        assert all(each.error_code == 0 for each in made), (made, rules)
        wanted = {tuple(rule.values()) for rule in rules}
        wait_for(lambda: self._rules() == wanted, "the authorizer to know the ACLs", seconds=30)

    def _rules(self) -> set[tuple[Any, ...]]:
        found = self.admin.quietly("DescribeAcls", 3, **EVERYTHING).resources
        return {
            (each.resource_type, each.resource_name, each.pattern_type,
             acl.principal, acl.host, acl.operation, acl.permission_type)
            for each in found for acl in each.acls
        }  # fmt: skip

    def ask(self, asked: Sequence[Asked], name: str) -> list[tuple[str, Any]]:
        """By a name of each request what was answered, and what the super user sees afterwards."""
        return [
            (f"{each.api} {each.version} {case}", answer)
            for number, each in enumerate(asked)
            for case, answer in (
                self.questions.ask_one(each.api, each.version, each.number, f"{name}-{number}", self.user),
            )
        ]


@contextmanager
def both(folder: Path) -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    """Apache Kafka and kbroker."""
    brokers = SecuredBroker(KafkaProcess(folder / "kafka", {})), SecuredBroker(KbrokerProcess(folder / "kbroker", {}))
    try:
        for each in brokers:
            each.start()
        yield brokers
    finally:
        for each in brokers:
            each.close()


def compare(folder: Path, seed: int, seconds: float, apis: Sequence[str] = ()) -> tuple[int, list[str]]:
    """How many requests were asked in so many seconds, and a line for each difference that is not allowed."""
    differing, count = [], 0
    with both(folder) as brokers, ThreadPoolExecutor(2) as pool:
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            rng = random.Random(f"{seed} {number}")
            rules, asked = drawn_rules(rng), drawn_requests(rng, PER_ROUND, apis)
            for each in brokers:
                each.set_rules(rules)
            jobs = [pool.submit(each.ask, asked, f"{number}") for each in brokers]
            theirs, ours = (job.result() for job in jobs)
            count += len(asked)
            differing += [f"round {number}, {line}" for line in _differences(asked, theirs, ours)]
            number += 1
    return count, differing


def _differences(
    asked: Sequence[Asked], theirs: Sequence[tuple[str, Any]], ours: Sequence[tuple[str, Any]]
) -> Iterator[str]:
    for each, (name, expected), (_, answer) in zip(asked, theirs, ours, strict=True):
        case = name.removeprefix(f"{each.api} {each.version} ")
        for line in differing_parts(expected, answer, ""):
            if not ENDS.search(f"{case}: {line}") and reason_of(each.api, each.version, f"{case}: {line}") is None:
                yield f"{name}: {line}"


def main() -> None:
    """Compare, and show what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=round(time.time()))
    parser.add_argument("apis", nargs="*", metavar="API")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count, differing = compare(Path(folder), given.seed, given.seconds, given.apis)
    for line in differing:
        print(line[:400])
    print(f"seed {given.seed}: {count} requests, {len(differing)} parts of answers differ")
    if differing:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
