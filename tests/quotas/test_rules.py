"""Precedence of quotas, limits of connections, and the number of meters."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.metadata.image import QuotaEntity
from kbroker.network.admission import Admission, Verdict
from kbroker.quotas.connection_rates import ConnectionRates, CreationRates
from kbroker.quotas.filters import in_order
from kbroker.quotas.meters import QuotaKind, QuotaMeters
from kbroker.quotas.rate import Windows
from kbroker.quotas.rules import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    Limit,
    QuotaRules,
    Share,
)

# As Apache Kafka 4.3.1 named them, in whatever order one request had set them.
KAFKAS_ORDERS = [
    ("consumer_byte_rate", "controller_mutation_rate"),
    ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate"),
    ("consumer_byte_rate", "controller_mutation_rate", "request_percentage"),
    ("consumer_byte_rate", "producer_byte_rate"),
    ("consumer_byte_rate", "request_percentage"),
    ("consumer_byte_rate", "request_percentage", "producer_byte_rate"),
    ("controller_mutation_rate", "producer_byte_rate"),
    ("controller_mutation_rate", "request_percentage"),
    ("controller_mutation_rate", "request_percentage", "producer_byte_rate"),
    ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"),
    ("request_percentage", "producer_byte_rate"),
]
NAMES = st.sampled_from(["a", "b", None])
ENTITIES: st.SearchStrategy[QuotaEntity] = st.one_of(
    st.builds(lambda user: ((USER, user),), NAMES),
    st.builds(lambda client: ((CLIENT_ID, client),), NAMES),
    st.builds(lambda client, user: ((CLIENT_ID, client), (USER, user)), NAMES, NAMES),
)


@pytest.mark.parametrize("order", KAFKAS_ORDERS)
def test_quotas_are_described_in_kafkas_order(order: tuple[str, ...]) -> None:
    """A script that compares what two brokers describe would find a difference where there is none."""
    for set_in in permutations(order):
        assert tuple(key for key, _ in in_order(dict.fromkeys(set_in, 1.0))) == order


def rank(entity: QuotaEntity, user: str, client: str) -> int | None:
    """How specific an entity is for a client; None where it is not for it.  Users go before client ids."""
    names = dict(entity)
    if names.get(USER, user) not in (user, None) or names.get(CLIENT_ID, client) not in (client, None):
        return None
    of_user = 0 if USER not in names else (18 if names[USER] is not None else 9)
    of_client = 0 if CLIENT_ID not in names else (2 if names[CLIENT_ID] is not None else 1)
    return of_user + of_client


@given(st.dictionaries(ENTITIES, st.integers(1, 1000)), st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_most_specific_quota_decides(quotas: dict[QuotaEntity, int], user: str, client: str) -> None:
    """A client would get another one's limit, or none."""
    rules = QuotaRules({entity: {PRODUCER_BYTE_RATE: float(value)} for entity, value in quotas.items()})
    ranked = [(found, entity) for entity in quotas if (found := rank(entity, user, client)) is not None]
    limit = rules.limit(PRODUCER_BYTE_RATE, user, client)
    if not ranked:
        assert limit is None
        return
    entity = max(ranked)[1]
    kinds = dict(entity)
    assert limit == Limit(quotas[entity], Share(user if USER in kinds else "", client if CLIENT_ID in kinds else ""))
    assert rules.limit("request_percentage", user, client) is None


def test_meters_of_clients_that_are_gone_are_dropped_and_keep_what_counts() -> None:
    """A broker would hold memory for each client id that it ever saw, or forget what one has just used."""
    meters = QuotaMeters(Windows(11, 1000), Windows(11, 1000))
    for number in range(100):
        assert meters.record(QuotaKind.PRODUCE, Limit(10, Share("", str(number))), 200, 0) == 10_000
    meters.expire(50_000)
    assert len(meters) == 100
    meters.record(QuotaKind.PRODUCE, Limit(10, Share("", "7")), 1, 50_000)
    meters.expire(70_000)
    assert [row.client_id for row in meters.rows(70_000)] == ["7"]


class Rates:
    """Connection rates whose time a test moves."""

    def __init__(self, rates: CreationRates, addresses: dict[str | None, float] | None = None) -> None:
        self.now_ms = 0
        hosts = {"host": frozenset({"10.0.0.1", "10.0.0.2"})}
        self.rates = ConnectionRates(
            Windows(11, 1000), rates, lambda: self.now_ms, lambda name: hosts.get(name, frozenset({name}))
        )
        quotas = {((IP, name),): {CONNECTION_CREATION_RATE: value} for name, value in (addresses or {}).items()}
        self.rates.follow(QuotaRules(quotas))

    def admit(self, count: int, address: str = "10.0.0.9", listener: str = "PLAINTEXT") -> list[Admission]:
        return [self.rates.admit(listener, address) for _ in range(count)]


def test_connections_of_an_address_above_its_rate_are_refused_and_not_counted() -> None:
    """One host could keep a broker busy with connections, or would be locked out by its own attempts."""
    rates = Rates(CreationRates(), {"host": 1, None: 2})
    served = Admission(Verdict.SERVED)
    assert rates.admit(10, "10.0.0.1") == [served] * 10
    assert rates.admit(3, "10.0.0.1") == [Admission(Verdict.REFUSED, 1000)] * 3
    assert rates.admit(10, "10.0.0.2") == [served] * 10
    assert rates.admit(21, "10.0.0.3") == [served] * 20 + [Admission(Verdict.REFUSED, 500)]
    rates.now_ms = 11_000
    assert rates.admit(1, "10.0.0.1") == [served]
    rates.rates.follow(QuotaRules({}))
    assert rates.admit(100, "10.0.0.1") == [served] * 100


def test_connections_above_the_rate_of_listener_or_broker_are_spread_over_time() -> None:
    """A crowd of clients would come at once, or one listener would be limited by another's rate."""
    rates = Rates(CreationRates(10, {"OUT": 1}, "BETWEEN"))
    assert [each.delay_ms for each in rates.admit(103)] == [0] * 100 + [100, 200, 300]
    assert {each.verdict for each in rates.admit(1000, listener="BETWEEN")} == {Verdict.SERVED}
    other = Rates(CreationRates(2**31 - 1, {"OUT": 1}))
    assert [each.delay_ms for each in other.admit(12, listener="OUT")] == [0] * 10 + [1000, 2000]
    assert {each.verdict for each in other.admit(100)} == {Verdict.SERVED}


def test_quotas_of_client_ids_are_for_clients_that_name_one() -> None:
    """As in Kafka: a client without an id would be throttled by the default of all ids."""
    every_id: QuotaEntity = ((CLIENT_ID, None),)
    rules = QuotaRules(
        {every_id: {PRODUCER_BYTE_RATE: 1.0}, ((CLIENT_ID, None), (USER, "u")): {PRODUCER_BYTE_RATE: 2.0}}
    )
    assert rules.limit(PRODUCER_BYTE_RATE, "u", "") is None
    assert rules.limit(PRODUCER_BYTE_RATE, "v", "c") == Limit(1.0, Share("", "c"))
    assert rules.limit(PRODUCER_BYTE_RATE, "u", "c") == Limit(2.0, Share("u", "c"))
