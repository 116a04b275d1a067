"""What a running broker shows after work whose numbers are known.

Also of `kbroker.assembly.figures`, `kbroker.metrics.exposition`, `kbroker.metrics.families`,
`kbroker.metrics.loop_delay`, `kbroker.metrics.snapshot`.
"""

from __future__ import annotations

import struct
import urllib.error
import urllib.request
from collections.abc import Callable

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

FIND_COORDINATOR, OFFSET_COMMIT = 10, 8


def commit(port: int, group: str, topic: str, offset: int) -> None:
    """OffsetCommit 2 by a client that is no member of the group."""
    with RawClient(port) as client:
        while client.ask(raw.request(FIND_COORDINATOR, 0, raw.string(group)))[4:6] != b"\0\0":
            pass  # the topic of offsets is being made
        body = (
            raw.string(group) + struct.pack(">i", -1) + raw.string("") + struct.pack(">qi", -1, 1) + raw.string(topic)
        )
        body += struct.pack(">iiq", 1, 0, offset) + raw.string("")
        while client.ask(raw.request(OFFSET_COMMIT, 2, body))[-2:] != b"\0\0":
            pass  # its partition is being loaded


def test_a_scrape_adds_up(broker: BrokerProcess) -> None:
    """Operators would steer by numbers that have nothing to do with what the broker did."""
    raw.create_topic(broker.port, "seen", 2)
    with RawClient(broker.port) as client:
        for _ in range(4):
            assert raw.produce_answer(client.ask(raw.produce("seen", 0, raw.good_batch(5))))[0] == raw.NONE
        client.ask(raw.fetch("seen", 0, 0))
    commit(broker.port, "readers", "seen", 13)
    shown = raw.scrape(broker.metrics_url)
    place = '{partition="0",topic="seen"}'
    assert shown[f"kbroker_partition_log_end_offset{place}"] == 20
    assert shown[f"kbroker_partition_high_watermark{place}"] == 20
    (log,) = broker.data_dir.glob("seen-0/*.log")
    assert shown[f"kbroker_partition_size_bytes{place}"] == 4 * len(raw.good_batch(5)) <= log.stat().st_size
    assert shown['kbroker_group_lag{group="readers",partition="0",topic="seen"}'] == 7
    assert shown['kbroker_groups{state="Empty"}'] == 1
    produced = {
        name: value for name, value in shown.items() if name.lower().startswith('kbroker_requests_total{api="produce')
    }
    assert list(produced.values()) == [4]
    fetched = {
        name: value
        for name, value in shown.items()
        if name.lower().startswith('kbroker_response_bytes_total{api="fetch')
    }
    assert all(value > 4 * len(raw.good_batch(5)) for value in fetched.values()) and fetched
    assert shown["kbroker_bytes_in_total"] > 4 * len(raw.good_batch(5))
    assert shown['kbroker_connections_accepted_total{listener="PLAINTEXT"}'] >= 3
    # A sample is taken ten times a second, and all of the above may take less.
    wait_for(
        lambda: raw.scrape(broker.metrics_url)["kbroker_loop_delay_seconds_count"] > 0, "a sample of the loop's delay"
    )


def test_a_running_broker_is_healthy_and_ready(broker: BrokerProcess) -> None:
    """An orchestrator would restart a broker that works, or send clients to one that doesn't yet."""
    for path, text in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
        with urllib.request.urlopen(broker.metrics_url + path, timeout=10) as answer:
            assert answer.status == 200 and answer.read() == text
    try:
        urllib.request.urlopen(broker.metrics_url + "/admin", timeout=10)
    except urllib.error.HTTPError as error:
        assert error.code == 404
        error.close()
    else:
        raise AssertionError("an unknown path was served")


def test_a_busy_metrics_port_does_not_stop_a_broker(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """A second broker on the host would not start for want of a metrics port."""
    first = kbroker_process()
    second = kbroker_process({"metrics.listener": f"http://127.0.0.1:{first.metrics_port}"})
    assert second.running
    assert sum("no metrics" in line for line in second.output().splitlines()) == 1


def test_the_bound_of_series_is_a_setting(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """A scrape of a broker with very many partitions could not be made smaller, or larger where it is wanted."""
    broker = kbroker_process({"kbroker.metrics.max.partitions": "2"})
    raw.create_topic(broker.port, "two", 2)
    place = 'kbroker_partition_log_end_offset{partition="1",topic="two"}'
    assert place in raw.scrape(broker.metrics_url)
    raw.create_topic(broker.port, "more", 1)
    shown = raw.scrape(broker.metrics_url)
    assert place not in shown
    assert shown['kbroker_topic_partitions{topic="two"}'] == 2
    (size,) = (value for name, value in shown.items() if name.startswith("kbroker_log_dir_partitions"))
    assert size == 3
