"""Namings of what JMX's beans say, and the one-minute rates that are among it.

Of `kbroker.metrics.kafka_naming`, `kbroker.metrics.kafka_namings`, `kbroker.metrics.kafka_beans`,
`kbroker.metrics.recent_rates`.
"""

from __future__ import annotations

import math
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from kbroker.config.server_rows import SERVER_ROWS
from kbroker.metrics.http_messages import KAFKA_NAMINGS
from kbroker.metrics.kafka_beans import BEANS, Said
from kbroker.metrics.kafka_namings import NAMINGS
from kbroker.metrics.recent_rates import MINUTE_SECONDS, TICK_SECONDS, RecentRates
from tests.broker.client import until
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.metrics.kafka_series import of, scraped, use

BY_NAME = {(bean.kind, bean.name): bean for bean in BEANS}
MESSAGES = "BrokerTopicMetrics", "MessagesInPerSec"
TRAFFIC = "kafka_server_brokertopicmetrics"
MESSAGES_IN = f"{TRAFFIC}_messagesinpersec"
CONSUMER = "kafka_server_consumer"


def series(naming: str, bean: tuple[str, str], attribute: str, **properties: str) -> tuple[str, dict[str, str]] | None:
    return NAMINGS[naming].series(Said(BY_NAME[bean], tuple(properties.items()), attribute, 1.0))


@pytest.mark.parametrize(
    ("naming", "bean", "attribute", "properties", "name", "labels"),
    [
        (
            "raw",
            MESSAGES,
            "Count",
            {"topic": "t"},
            "kafka_server_BrokerTopicMetrics_Count",
            {"name": MESSAGES[1], "topic": "t"},
        ),
        ("raw-total", MESSAGES, "Count", {}, "kafka_server_BrokerTopicMetrics_Count_total", {"name": MESSAGES[1]}),
        (
            "raw-lower",
            MESSAGES,
            "OneMinuteRate",
            {},
            f"{TRAFFIC}_oneminuterate",
            {"name": MESSAGES[1]},
        ),
        (
            "flat",
            MESSAGES,
            "Count",
            {"topic": "a.b"},
            f"{MESSAGES_IN}_count",
            {"topic": "a.b"},
        ),
        (
            "flat",
            ("RequestMetrics", "ErrorsPerSec"),
            "Count",
            {"request": "Produce", "error": "NONE"},
            "kafka_network_requestmetrics_errorspersec_count",
            {"request": "Produce", "error": "NONE"},
        ),
        (
            "bitnami",
            MESSAGES,
            "Count",
            {"topic": "t"},
            f"{MESSAGES_IN}_count",
            {"topic": "t"},
        ),
        ("bitnami", MESSAGES, "Count", {}, "kafka_server_brokertopicmetrics_total_messagesinpersec_count", {}),
        (
            "plain",
            ("RequestMetrics", "TotalTimeMs"),
            "99thPercentile",
            {"request": "Produce"},
            "kafka_network_requestmetrics_totaltimems",
            {"request": "Produce", "quantile": "0.99"},
        ),
        (
            "plain",
            MESSAGES,
            "Count",
            {"topic": "t"},
            f"{MESSAGES_IN}_total",
            {"topic": "t"},
        ),
        ("plain", ("ReplicaManager", "LeaderCount"), "Value", {}, "kafka_server_replicamanager_leadercount", {}),
        ("plain", ("Fetch", ""), "byte-rate", {"user": "u"}, "kafka_server_fetch_byte_rate", {"user": "u"}),
        (
            "bitnami",
            ("DelayedOperationPurgatory", "PurgatorySize"),
            "Value",
            {"delayedOperation": "Fetch"},
            "kafka_server_delayedoperationpurgatory_purgatorysize_fetch_value",
            {},
        ),
        ("cp-helm", MESSAGES, "OneMinuteRate", {}, "cp_kafka_server_brokertopicmetrics_messagesinpersec", {}),
        (
            "cp-helm",
            ("RequestMetrics", "RequestsPerSec"),
            "OneMinuteRate",
            {"request": "Produce"},
            "cp_kafka_network_requestmetrics_requestspersec_produce",
            {},
        ),
        (
            "sysdig",
            ("RequestMetrics", "TotalTimeMs"),
            "95thPercentile",
            {"request": "Produce"},
            "kafka_network_producer_request_time_milliseconds",
            {"quantile": "0.95"},
        ),
        (
            "sysdig",
            ("Fetch", ""),
            "byte-rate",
            {"client-id": "c"},
            f"{CONSUMER}_client_byterate",
            {"client_id": "c"},
        ),
        (
            "sysdig",
            ("Fetch", ""),
            "byte-rate",
            {"user": "u", "client-id": "c"},
            "kafka_server_consumer_user_client_byterate",
            {"user": "u", "client_id": "c"},
        ),
    ],
)
def test_a_bean_is_named_as_the_rules_name_it(
    naming: str, bean: tuple[str, str], attribute: str, properties: dict[str, str], name: str, labels: dict[str, str]
) -> None:
    """A dashboard made for those rules would stay empty."""
    assert series(naming, bean, attribute, **properties) == (name, labels)
    # Again, from what is remembered, with other values.
    others = {key: "other" if text in labels.values() and key == "topic" else text for key, text in properties.items()}
    found = series(naming, bean, attribute, **others)
    assert found is not None and found[0] == name
    assert {**labels, **({"topic": "other"} if "topic" in labels else {})} == found[1]


def test_what_no_rule_names_is_not_shown() -> None:
    """A naming would have names that its users do not know."""
    assert series("cp-helm", MESSAGES, "Count") is None
    assert series("cp-helm", MESSAGES, "OneMinuteRate", topic="t") is None
    assert series("sysdig", MESSAGES, "Count") is None


def test_the_setting_and_the_paths_name_all_namings() -> None:
    """A naming could not be asked for."""
    assert tuple(NAMINGS) == KAFKA_NAMINGS
    lines = SERVER_ROWS.replace("\n    ", " ").split("\n")
    (row,) = (line for line in lines if line.startswith("kbroker.metrics.names|"))
    names = ", ".join(("kbroker", "kafka", *(f"kafka-{each}" for each in KAFKA_NAMINGS)))
    assert row.split("|")[4] == f"one of {names}"


class Yammer:
    """A meter as Kafka has it: every five seconds a thread takes what was counted since."""

    def __init__(self) -> None:
        self.rate: float | None = None

    def tick(self, counted: float) -> None:
        now = counted / TICK_SECONDS
        if self.rate is None:
            self.rate = now
        else:
            self.rate += (now - self.rate) * (1 - math.exp(-TICK_SECONDS / MINUTE_SECONDS))


def test_a_rate_over_a_minute_is_that_of_kafkas_meters() -> None:
    """A dashboard would show a broker that is twice as busy as it was under Kafka, or half."""
    meter, rates, count, now = Yammer(), RecentRates(100.0), 0, 100.0
    for tick in range(200):
        counted = (tick * 7919) % 100
        count += counted
        now += TICK_SECONDS
        meter.tick(counted)
        rates.begin(now)
        assert rates.rate(("a",), count) == pytest.approx(meter.rate)
        rates.end()


def test_a_rate_needs_no_scrape_to_fall() -> None:
    """Traffic that has ended would go on for ever where scrapes are rare."""
    meter, rates = Yammer(), RecentRates(0.0)
    meter.tick(500)
    rates.begin(5.0)
    assert rates.rate(("a",), 500) == meter.rate == 100
    rates.end()
    for _ in range(24):
        meter.tick(0)
    rates.begin(125.0)
    assert rates.rate(("a",), 500) == pytest.approx(meter.rate)
    rates.end()
    # Two scrapers within a tick see the same, and a counter that begins anew is no fall.
    rates.begin(126.0)
    assert rates.rate(("a",), 700) == pytest.approx(meter.rate)
    rates.end()
    rates.begin(130.0)
    assert rates.rate(("a",), 10) > 0
    rates.end()


@pytest.fixture(name="used", scope="module")
def _used(module_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    use(module_broker.port)
    yield module_broker


@pytest.mark.parametrize("naming", KAFKA_NAMINGS)
def test_a_scrape_has_the_names_that_it_asks_for(used: BrokerProcess, naming: str) -> None:
    """A Prometheus that is set up for one naming would get another."""
    asked = scraped(used.metrics_url, f"/metrics/kafka?names={naming}")
    at_path = scraped(used.metrics_url, f"/metrics/kafka/{naming}")
    assert asked.keys() == at_path.keys()
    assert {"kafka_consumergroup_lag", "process_open_fds"} <= asked.keys()
    assert scraped(used.metrics_url, "/metrics/kafka?names=strimzi").keys() == scraped(used.metrics_url).keys()


def test_an_unknown_naming_is_said(used: BrokerProcess) -> None:
    """A word misspelt would have silently another naming."""
    with pytest.raises(urllib.error.HTTPError) as error:
        scraped(used.metrics_url, "/metrics/kafka?names=cp-heml")
    assert error.value.code == 404 and b"cp-helm" in error.value.read()


def test_a_rate_is_shown_of_what_came(kbroker_process: StartBroker) -> None:
    """Panels of those who use cp-helm-charts would show 0 for a busy broker."""
    broker = kbroker_process({"kbroker.metrics.names": "kafka-cp-helm"})
    use(broker.port)
    name = "cp_kafka_server_brokertopicmetrics_messagesinpersec"
    until(lambda: of(scraped(broker.metrics_url, "/metrics"), name) > 0, "a rate of messages")
