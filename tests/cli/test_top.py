"""`kbroker top`: rates out of two looks at the metrics page, on the screen and as JSON."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from kbroker.cli.cluster.rates import Look, looks, rates, read_look
from kbroker.cli.cluster.top import headline, screen, shares
from kbroker.cli.main import run
from kbroker.types import JsonObject
from tests.broker.client import Batch, Client
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

PAGE = """
# TYPE kbroker_uptime_seconds gauge
kbroker_uptime_seconds {uptime}
# TYPE kbroker_requests_total counter
kbroker_requests_total{{api="Produce"}} {requests}
kbroker_requests_total{{api="Fetch"}} 7
# TYPE kbroker_request_seconds histogram
kbroker_request_seconds_bucket{{api="Produce",le="+Inf"}} {requests}
kbroker_request_seconds_count{{api="Produce"}} {requests}
kbroker_request_seconds_sum{{api="Produce"}} {spent}
# TYPE kbroker_partition_log_end_offset gauge
kbroker_partition_log_end_offset{{topic="a",partition="0"}} {first}
kbroker_partition_log_end_offset{{topic="a",partition="1"}} {second}
kbroker_partition_log_end_offset{{topic="[bold]",partition="0"}} 5
# TYPE kbroker_topic_size_bytes gauge
kbroker_topic_size_bytes{{topic="a"}} {size}
# TYPE kbroker_topic_partitions gauge
kbroker_topic_partitions{{topic="a"}} 2
# TYPE kbroker_group_committed_offset gauge
kbroker_group_committed_offset{{group="g",topic="a",partition="0"}} {committed}
# TYPE kbroker_group_lag_sum gauge
kbroker_group_lag_sum{{group="g"}} {lag}
# TYPE kbroker_loop_delay_seconds histogram
kbroker_loop_delay_seconds_bucket{{le="0.001"}} {quick}
kbroker_loop_delay_seconds_bucket{{le="0.01"}} {slow}
kbroker_loop_delay_seconds_bucket{{le="+Inf"}} {slow}
kbroker_loop_delay_seconds_count {slow}
"""
FIRST = {
    "uptime": 100, "requests": 1000, "spent": 1, "first": 10, "second": 20, "size": 5000, "committed": 5, "lag": 25,
    "quick": 50, "slow": 60,
}  # fmt: skip
LATER = {
    "uptime": 110, "requests": 3000, "spent": 2, "first": 40, "second": 90, "size": 4000, "committed": 65, "lag": 5,
    "quick": 150, "slow": 160,
}  # fmt: skip


def look(values: dict[str, int]) -> Look:
    return read_look(PAGE.format(**values))


def row(found: JsonObject, table: str, name: str, value: str) -> JsonObject:
    (wanted,) = [each for each in found[table] if each[name] == value]
    return dict(wanted)


def test_rates_are_differences_over_the_brokers_own_clock() -> None:
    """The numbers would be those since the start, or wrong by what the scrape took."""
    found = rates(look(FIRST), look(LATER))
    assert found["seconds"] == 10
    topic = row(found, "topics", "topic", "a")
    assert (topic["records_per_second"], topic["growth_bytes_per_second"]) == (10, -100)
    assert (topic["size_bytes"], topic["partitions"]) == (4000, 2)
    group = row(found, "groups", "group", "g")
    assert (group["records_per_second"], group["lag"], group["lag_change_per_second"]) == (6, 5, -2)
    produce = row(found, "apis", "api", "Produce")
    assert (produce["requests_per_second"], produce["mean_ms"]) == (200, 0.5)
    assert row(found, "apis", "api", "Fetch")["mean_ms"] is None
    assert found["broker"]["requests_per_second"] == 200
    assert found["broker"]["loop_delay_p99_ms"] == 1
    assert [each["topic"] for each in found["topics"]] == ["a", "[bold]"]


def test_a_broker_that_was_started_anew_counts_from_its_start() -> None:
    """A restart would show as a negative rate, or hide what came after it."""
    found = rates(look(LATER), look({**FIRST, "uptime": 5}))
    assert found["seconds"] == 5
    assert row(found, "apis", "api", "Produce")["requests_per_second"] == 200
    assert row(found, "topics", "topic", "a")["records_per_second"] == 6


def connection(key: str, client_id: str, requests: int, received: int) -> JsonObject:
    traffic = {"request_count": requests, "bytes_in": received, "bytes_out": 2 * received}
    return {"key": key, "client_id": client_id, "software": "s 1", "is_throttled": key == "a", **traffic}


def test_clients_are_what_their_connections_did() -> None:
    """Which client it is that keeps the broker busy could not be seen."""
    before, after = look(FIRST), look(LATER)
    before.connections = {line["key"]: line for line in (connection("a", "x", 5, 100), connection("b", "x", 70, 900))}
    lines = (connection("a", "x", 25, 300), connection("b", "x", 10, 50), connection("c", "y", 100, 10_000))
    after.connections = {line["key"]: line for line in lines}
    found = rates(before, after)["clients"]
    assert [row["client_id"] for row in found] == ["y", "x"]
    assert (found[0]["requests_per_second"], found[0]["connections"]) == (10, 1)
    # The second of x is another connection from a port that was given again.
    assert (found[1]["requests_per_second"], found[1]["bytes_in_per_second"], found[1]["throttled"]) == (3, 25, 1)
    assert rates(look(FIRST), look(LATER))["clients"] is None


def test_each_look_is_compared_with_the_one_before() -> None:
    """The second screen would show the sum of both."""
    pages = iter([PAGE.format(**values) for values in (FIRST, LATER, {**LATER, "uptime": 120})])
    figures = looks(lambda: read_look(next(pages)), lambda: None)
    assert [next(figures)["broker"]["requests_per_second"] for _ in range(2)] == [200, 0]


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [([], 5, []), ([2, 2], 10, [2, 2]), ([9, 1, 9], 7, [3, 1, 3]), ([5, 5], -3, [0, 0])],
)
def test_tables_share_the_lines_of_the_terminal(wanted: list[int], room: int, given: list[int]) -> None:
    """The first table would push the others out of the screen."""
    assert shares(wanted, room) == given


def test_the_screen_fits_and_takes_names_as_they_are() -> None:
    """A topic's name would be taken as markup, or a line wrapped and the screen scroll."""
    found = rates(look(FIRST), look(LATER))
    console = Console(width=60, height=20, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(screen(found, "http://h:1", 20, 20))
    lines = capture.get().splitlines()
    assert len(lines) <= 20 and all(len(line) <= 60 for line in lines)
    assert any("[bold]" in line for line in lines) and "http://h:1" in lines[-1]
    assert headline(found).startswith("kbroker")


def test_a_running_broker_is_shown(module_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of the page and those of the command would drift apart."""
    with Client(module_broker.port) as client:
        client.create("orders", partitions=3)
        client.produce("orders", Batch())
        arguments = ["top", "--once", "--interval", "0.1", "-m", module_broker.metrics_url]
        assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert row(found, "topics", "topic", "orders")["partitions"] == 3
    assert found["broker"]["node_id"] == "1" and found["broker"]["resident_bytes"] > 0
    assert sum(each["connections"] for each in found["clients"]) == 1
    assert run(arguments) == 0
    assert "orders" in capsys.readouterr().out
    assert run(["top", "--once", "-m", f"http://{module_broker.bootstrap}"]) == 1
    assert "metrics listener" in capsys.readouterr().err


def test_a_broker_without_a_console_is_shown_without_its_clients(
    kbroker_process: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who turned the console off would lose the rates as well."""
    broker = kbroker_process({"kbroker.console.enable": "false"})
    assert run(["top", "--once", "--interval", "0.1", "-m", broker.metrics_url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clients"] is None
