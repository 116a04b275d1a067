"""What an authorizer costs: a decision among 100,000 ACLs, and a partition of a request by a principal with 1,000."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.gate.gate import Gate, Gatekeeper
from kbroker.gate.client_gate import ClientGate
from kbroker.handlers.records.fetch import FAST_FETCH
from kbroker.metadata.security_image import Acl
from kbroker.quotas.meters import QuotaMeters
from kbroker.quotas.rate import Windows
from kbroker.replication.partition import Partition
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.authorizer import CachedAuthorizer, Operation, ResourceKind
from kbroker.security.principal import AuthenticationState, Principal, Session
from tests.extensions.direct_requests import ask
from tests.handlers.both_ways import FetchRequest, Side, encoded
from tests.handlers.partitions import led

ACLS, OWN, TOPICS = 100_000, 1_000, 100
ALICE, HOST = Principal("User", "alice"), "10.0.0.7"
NAMES = [f"topic-of-alice-{number:04}" for number in range(OWN)]


def rules() -> Iterator[Acl]:
    rng = random.Random(1)
    for name in NAMES:
        yield Acl(2, name, 3, str(ALICE), "*", rng.choice((3, 4, 2)), 3)
    for number in range(ACLS - OWN):
        name = f"{rng.choice('abcdefgh')}{rng.randrange(10**9)}"[: rng.randint(1, 10)]
        yield Acl(2, name, rng.choice((3, 4)), f"User:u{number % 5000}", "*", rng.choice((3, 4)), 3)


@pytest.fixture(scope="module", name="authorizer")
def _authorizer() -> StandardAuthorizer:
    return StandardAuthorizer(AuthorizerSettings(), rules())


@pytest.mark.benchmark(group="a decision among 100,000 ACLs, asked for the first time")
@pytest.mark.parametrize("name", [NAMES[500], "nobody-has-rules-for-this"])
def test_decision(benchmark: Any, authorizer: StandardAuthorizer, name: str) -> None:
    benchmark(authorizer.is_authorized, ALICE, HOST, Operation.READ, ResourceKind.TOPIC, name)


@pytest.mark.benchmark(group="a decision among 100,000 ACLs, about any resource")
def test_decision_about_any(benchmark: Any, authorizer: StandardAuthorizer) -> None:
    benchmark(authorizer.is_authorized_for_any, ALICE, HOST, Operation.WRITE, ResourceKind.TOPIC)


def gate_of(authorizer: StandardAuthorizer) -> ClientGate:
    session = Session(ALICE, HOST, "PLAINTEXT", AuthenticationState.AUTHENTICATED)
    meters = QuotaMeters(Windows(), Windows())
    return ClientGate(session, CachedAuthorizer(authorizer), {}, meters, lambda: 0, Gatekeeper())


@pytest.mark.benchmark(group="a decision asked again, by a handler")
def test_handlers_decision(benchmark: Any, authorizer: StandardAuthorizer) -> None:
    gate = gate_of(authorizer)
    benchmark(gate.allows, None, Operation.READ, ResourceKind.TOPIC, NAMES[0], False)


@pytest.mark.benchmark(group="a fetch of 100 topics at their ends")
@pytest.mark.parametrize("guarded", [False, True], ids=["free", "by ACLs"])
def test_fetch(benchmark: Any, tmp_path: Path, guarded: bool) -> None:
    side = Side(tmp_path)
    topics = NAMES[:TOPICS]
    manager: Any = side.services.replica_manager
    for name in topics:
        manager.topics[name] = {3: Partition(name, 3, bytes(16), side.log, 1, led(), manager.purgatory)}
    rows = [FetchRequest.FetchPartition(partition=3, fetch_offset=2, partition_max_bytes=1000)]
    asked = [FetchRequest.FetchTopic(topic=name, partitions=rows) for name in topics]
    request = encoded(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=asked), 12)
    own = [Acl(2, name, 3, str(ALICE), "*", 3, 3) for name in NAMES]
    gate: Gate | None = gate_of(StandardAuthorizer(AuthorizerSettings(), own)) if guarded else None
    assert ask(FAST_FETCH, side.services, 12, 1, request, gate) is not None
    benchmark(ask, FAST_FETCH, side.services, 12, 1, request, gate)
    side.log.close(clean=False)
