"""The benchmark's load generator against a running broker: its frames are valid and what it counts is true."""

from __future__ import annotations

import pytest

from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw

cells = pytest.importorskip("bench.cells", reason="the benchmark is not part of this tree")
brokers = pytest.importorskip("bench.brokers")
runners = pytest.importorskip("bench.runners")
raw_cells = pytest.importorskip("bench.raw")
load = pytest.importorskip("bench.cell").Load


@pytest.mark.parametrize(
    "name",
    ["one-50", "batch-16-all", "batch-1m", "zstd-16", "partitions-100", "fetch-16k-16", "metadata", "api-versions"],
)
def test_a_cell_runs_without_errors(name: str, module_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark would measure how fast the broker refuses requests."""
    (cell,) = cells.chosen(name)
    target = brokers.Broker("under test", "127.0.0.1", module_broker.port, module_broker.pid)
    monkeypatch.setattr(raw_cells, "READ_BYTES", 16 << 20)
    before = raw.scrape(module_broker.metrics_url)
    result = runners.run(cell, target, load(0.2))
    after = raw.scrape(module_broker.metrics_url)
    assert result["errors"] == 0 and result["requests"] > 0
    served = sum(
        value - before.get(sample, 0.0)
        for sample, value in after.items()
        if sample.startswith("kbroker_requests_total")
    )
    assert served >= result["requests"]


def test_latency_is_measured_end_to_end(module_broker: BrokerProcess) -> None:
    """The latency would be that of an empty answer."""
    (cell,) = cells.chosen("e2e-1000")
    target = brokers.Broker("under test", "127.0.0.1", module_broker.port, module_broker.pid)
    result = runners.run(cell, target, load(0.3))
    assert result["requests"] == 300 and 0 < result["p50_us"] <= result["p99_us"]
