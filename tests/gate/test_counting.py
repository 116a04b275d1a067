"""What a gate counts of a request against its client's quotas, for how long it mutes the client, and what it withholds.

Also of `kbroker.gate.client_gate`, `kbroker.gate.enforcement`, `kbroker.quotas.mutation_quota`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.gate.client_gate import ClientGate
from kbroker.gate.enforcement import QuotaEnforcement
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, MetadataDelta
from kbroker.network.admission import Verdict
from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.quotas.host_names import HostNames
from kbroker.quotas.meters import QuotaKind
from kbroker.quotas.rules import CONNECTION_CREATION_RATE, IP, Limit, Share
from kbroker.replication.fetch_session import FetchSessionCache, FetchTarget
from kbroker.schemas import wire
from kbroker.security.principal import ANONYMOUS
from kbroker.types import ZERO_UUID
from tests.gate.rules import known, meters
from tests.storage.batches import HandClock

SHARE = Share("ANONYMOUS", "")
NS_PER_PERCENT = 10_000_000


class Counting:
    """A gate with these limits; `settle` counts a request, at a time that stands still."""

    def __init__(self, limits: Mapping[QuotaKind, float]) -> None:
        self.meters = meters()
        given = {kind: Limit(limit, SHARE) for kind, limit in limits.items()}
        self.gate = ClientGate(known(ANONYMOUS), None, given, self.meters, lambda: 0)

    def settle(self, api_key: ApiKey, size: int = 0, percent: float = 0) -> tuple[int, bool]:
        """`size`: of the request and of its answer; `percent`: of a second of the loop."""
        context: Any = SimpleNamespace(api_key=api_key)
        return self.gate.settle(context, size, size, int(percent * NS_PER_PERCENT))

    def rows(self) -> dict[str, tuple[float, int, int]]:
        """By quota: the rate, how often and for how many milliseconds clients were muted for it."""
        return {row.kind: (row.rate, row.throttled_count, row.throttled_ms) for row in self.meters.rows(0)}


def test_a_client_above_two_quotas_waits_for_the_longer_time() -> None:
    """A client that sends much, in requests that are much work, would be muted for longer than both quotas ask for, and
    Kafka mutes it for."""
    both = {QuotaKind.PRODUCE: 100.0, QuotaKind.REQUEST: 1.0}
    # A window of ten seconds has room for 1000 bytes, and for ten hundredths of a second.
    bytes_longer = Counting(both)
    assert bytes_longer.settle(ApiKey.PRODUCE, size=2000, percent=20) == (10_000, False)
    assert bytes_longer.rows() == {"produce": (200.0, 1, 10_000), "request": (2.0, 0, 0)}
    time_longer = Counting(both)
    assert time_longer.settle(ApiKey.PRODUCE, size=1010, percent=20) == (1000, False)
    assert time_longer.rows() == {"produce": (101.0, 0, 0), "request": (2.0, 1, 1000)}


def test_records_that_are_withheld_do_not_count() -> None:
    """A consumer would be muted for records that it did not get, and again when it asks for them anew."""
    counting = Counting({QuotaKind.FETCH: 100.0})
    assert counting.settle(ApiKey.FETCH, size=500) == (0, False)
    assert counting.settle(ApiKey.FETCH, size=600) == (1000, True)
    assert counting.rows()["fetch"] == (50.0, 1, 1000)
    assert counting.settle(ApiKey.FETCH, size=500) == (0, False)
    # Those of a share group are acquired, and sent.
    assert counting.settle(ApiKey.SHARE_FETCH, size=100) == (1000, False)
    assert counting.rows()["fetch"][0] == 110.0


def test_a_request_is_muted_for_its_own_changes_of_topics_alone() -> None:
    """A client that has waited would be muted again, by a request that has changed nothing."""
    counting = Counting({QuotaKind.CONTROLLER_MUTATION: 1.0})

    def change(partitions: int) -> None:
        quota = counting.gate.mutation_quota(False)
        assert quota is not None
        quota.record(partitions)

    # A burst of eleven.
    change(15)
    assert counting.settle(ApiKey.CREATE_TOPICS) == (4000, False)
    assert counting.settle(ApiKey.CREATE_TOPICS) == (0, False)
    # Its topics are made by and by.
    change(1)
    assert counting.settle(ApiKey.STREAMS_GROUP_HEARTBEAT) == (0, False)
    assert counting.settle(ApiKey.CREATE_TOPICS) == (0, False)
    change(1)
    assert counting.settle(ApiKey.DELETE_TOPICS) == (6000, False)


def test_a_session_begins_again_where_its_first_answer_is_withheld() -> None:
    """A consumer would go on with a session that the broker has forgotten, or whose partitions it never heard of."""
    gate = Counting({QuotaKind.FETCH: 1.0}).gate
    asked = [FetchTarget("t", ZERO_UUID, 0, 0, 1000, -1, -1)]
    for version in (7, 12):
        sessions = FetchSessionCache(10)
        begun, lasting = (sessions.plan(0, 0, asked, [], False, 0).session_id for _ in range(2))
        sessions.plan(lasting, 1, [], [], False, 0)
        context: Any = SimpleNamespace(
            api_key=ApiKey.FETCH, api_version=version, services=SimpleNamespace(fetch_sessions=sessions)
        )
        header = struct.pack(">ii", 0, 1) + bytes(response_header_version(ApiKey.FETCH, version))
        for session_id, named in ((begun, 0), (lasting, lasting)):
            answer = wire.FetchResponse(session_id=session_id, responses=[])
            withheld = gate.withheld(context, header + bytes(answer.program(version).encode(answer)), 25)
            assert withheld == wire.FetchResponse(throttle_time_ms=25, session_id=named, responses=[])
        assert [each.session_id for each in sessions] == [lasting]


def test_rates_of_connections_follow_the_clusters_quotas() -> None:
    """A host that an operator limits while it floods the broker would go on, up to the next restart."""
    cache = MetadataCache(ClusterImage("c"))
    quotas = QuotaEnforcement(BrokerConfig.from_mapping({}), HandClock(), cache, HostNames())
    assert {quotas.admit("PLAINTEXT", "10.0.0.1").verdict for _ in range(30)} == {Verdict.SERVED}
    cache.apply(MetadataDelta(quotas={((IP, None),): {CONNECTION_CREATION_RATE: 1.0}}))
    verdicts = [quotas.admit("PLAINTEXT", "10.0.0.1").verdict for _ in range(11)]
    assert verdicts == [Verdict.SERVED] * 10 + [Verdict.REFUSED]
    cache.apply(MetadataDelta(quotas={((IP, None),): {}}))
    assert quotas.admit("PLAINTEXT", "10.0.0.1").verdict is Verdict.SERVED
