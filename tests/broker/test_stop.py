"""How a broker ends: what it still answers, what it leaves on disk, and how long it takes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbroker.records.batch import RecordBatchBuilder
from tests.broker.client import (
    Batch,
    Client,
    fetch_values,
    produce_values,
    until,
    until_waiting,
)
from tests.broker.slow_disk import slow_fsync
from tests.conftest import BrokerProcess, StartBroker
from tests.scenarios.batches import summary

__all__ = ["slow_fsync"]

# The broker gives what is under way one second; a machine with other work to do may take its time over the rest.
STOP_SECONDS = 60.0
ANY_LONG_MS = 300_000
LARGE_BATCHES = {"max.message.bytes": str(100 << 20)}
MARKER = ".kafka_cleanshutdown"


# A broker as any other, but that it gives what is under way a minute.
PATIENT = "from kbroker.assembly import listening; listening.DRAIN_SECONDS = 60.0; import kbroker.cli.__main__"


class PatientBroker(BrokerProcess):
    """For a machine that takes longer than a second over a batch."""

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("-m")
        return [*words[:at], "-c", PATIENT, *words[at + 2 :]]


@contextlib.contextmanager
def many(port: int, count: int) -> Iterator[list[Client]]:
    """So many connections at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Client(port)) for _ in range(count)]


def large_gzip(megabytes: int) -> bytes:
    """A batch that takes a thread some time to decompress."""
    builder = RecordBatchBuilder(compression=1)
    for number in range(megabytes * 16):
        builder.append(None, os.urandom(1 << 15) + bytes(1 << 15), number + 1)
    return bytes(builder.build())


def is_taken(client: Client) -> bool:
    """Whether the broker has read all that this connection sent: neither end holds any of it any more."""
    own, peer = client.socket.getsockname()[1], client.socket.getpeername()[1]
    held = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        ports = tuple(int(each.partition(":")[2], 16) for each in words[1:3])
        held[ports] = words[4].split(":")
    return held[own, peer][0] == held[peer, own][1] == "00000000"


def end(broker: BrokerProcess) -> None:
    """SIGTERM, without waiting."""
    os.kill(broker.pid, signal.SIGTERM)


def test_a_stop_leaves_the_marker_and_exit_status_0(broker: BrokerProcess) -> None:
    """Every restart would recover all logs, and a service manager would report a failure."""
    with Client(broker.port) as client:
        client.create("t")
        client.write("t")
    assert broker.stop() == 0
    assert (broker.data_dir / MARKER).exists()
    assert "stopped" in broker.output()
    broker.start()
    assert not (broker.data_dir / MARKER).exists()
    assert "after a clean stop" in broker.output()


def test_a_waiting_fetch_is_answered_at_the_stop(broker: BrokerProcess) -> None:
    """A consumer would lose its connection in the middle of a request at every restart."""
    with Client(broker.port) as client:
        client.create("t")
        client.send("Fetch", 11, fetch_values("t", wait_ms=ANY_LONG_MS))
        until_waiting(broker.metrics_url)
        end(broker)
        answer = client.answer("Fetch", 11)
        assert answer.responses[0].partitions[0].error_code == 0
        assert client.hung_up()
    assert broker.wait() == 0


def test_a_produce_under_way_is_finished_at_the_stop(tmp_path: Path) -> None:
    """A producer would write its records twice: stored, but never acknowledged."""
    with PatientBroker(tmp_path) as broker:
        with Client(broker.port) as client:
            client.create("t", configs=LARGE_BATCHES)
            client.send("Produce", 9, produce_values("t", large_gzip(8)))
            until(lambda: is_taken(client), "the broker to have read it")
            end(broker)
            assert client.answer("Produce", 9).responses[0].partition_responses[0].error_code == 0
        assert broker.wait() == 0
        broker.start()
        with Client(broker.port) as client:
            assert client.offset("t") == 128


def test_a_batch_that_takes_longer_than_the_stop_is_not_written(broker: BrokerProcess) -> None:
    """Records would go into a log that is already closed, behind what the recovery point and the marker say."""
    with Client(broker.port) as client, Client(broker.port) as other:
        client.create("t", configs={"compression.type": "gzip", "compression.gzip.level": "9", **LARGE_BATCHES})
        # Four letters in no order are the hardest that there is for this codec: more work than the stop may take.
        value = os.urandom(32 << 20).translate(bytes(letter & 3 for letter in range(256)))
        for sender in (client, other):
            sender.send("Produce", 9, produce_values("t", Batch([(None, value)])))
        end(broker)
        assert broker.wait(STOP_SECONDS) == 0
    broker.start()
    assert "after a clean stop" in broker.output()
    with Client(broker.port) as client:
        stored = client.offset("t")
        assert sum(row["records_count"] for row in summary(client.fetch("t", limit=50 << 20).records)) == stored
    assert "Traceback" not in broker.output()


def test_members_that_wait_are_sent_away_at_the_stop(kbroker_process: StartBroker) -> None:
    """A group in the middle of a rebalance would hold up every stop, or its members would wait for nothing."""
    broker = kbroker_process({"group.initial.rebalance.delay.ms": "60000", "offsets.topic.num.partitions": "1"})
    with Client(broker.port) as client, Client(broker.port) as other:
        client.send("JoinGroup", 3, join_values())
        until(lambda: described(other, "g") == "PreparingRebalance", "the member to wait")
        end(broker)
        assert client.answer("JoinGroup", 3).error_code == 16
        assert client.hung_up()
    assert broker.wait() == 0


def join_values() -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": b""}]
    return {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


def described(client: Client, group: str) -> str:
    return str(client.ask("DescribeGroups", 1, {"groups": [group]}).groups[0].group_state)


def test_a_thousand_connections_and_parked_fetches_do_not_hold_up_a_stop(broker: BrokerProcess) -> None:
    """A service manager would kill a broker that has clients, and it would recover at the next start."""
    with many(broker.port, 1000) as clients:
        clients[0].create("t")
        for client in clients[:500]:
            client.send("Fetch", 11, fetch_values("t", wait_ms=ANY_LONG_MS))
        clients[500].send_raw(b"\0\0\1\0unfinished")
        until_waiting(broker.metrics_url, 500)
        end(broker)
        for client in clients[:500]:
            assert client.answer("Fetch", 11).error_code == 0
        assert broker.wait(STOP_SECONDS) == 0
    assert (broker.data_dir / MARKER).exists()


def stop_reading(client: Client) -> None:
    """Ask for much, and take only the beginning of it."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.create("t")
    client.write("t", *[Batch([(None, bytes(900_000))])] * 12)
    client.send("Fetch", 11, fetch_values("t", limit=50 << 20))
    client.socket.recv(1)


def test_a_reader_that_does_not_read_does_not_hold_up_a_stop(broker: BrokerProcess) -> None:
    """One stuck consumer would keep the broker from stopping."""
    with Client(broker.port) as client:
        stop_reading(client)
        end(broker)
        assert broker.wait(STOP_SECONDS) == 0
    assert (broker.data_dir / MARKER).exists()


def test_requests_after_the_signal_are_not_begun(broker: BrokerProcess) -> None:
    """A busy client would keep the broker from stopping."""
    with Client(broker.port) as client:
        client.create("t")
        client.send("Fetch", 11, fetch_values("t", wait_ms=ANY_LONG_MS))
        client.send("Produce", 9, produce_values("t", Batch()))
        until_waiting(broker.metrics_url)
        end(broker)
        client._correlation_id -= 1
        client.answer("Fetch", 11)
        assert client.hung_up()
    assert broker.wait() == 0
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("t") == 0


def test_a_later_signal_ends_at_once(kbroker_process: StartBroker, slow_fsync: tuple[dict[str, str], Path]) -> None:
    """An operator could not end a broker that is slow to stop but with SIGKILL."""
    environ, switch = slow_fsync
    broker = kbroker_process(environ=environ)
    with Client(broker.port) as client:
        stop_reading(client)
        # Behind what the reader is given a second for, the disk holds up the stop: it cannot end by itself.
        switch.touch()
        end(broker)
        until(lambda: "stopping" in broker.output(), "the stop to begin")

        def ended() -> bool:
            if broker.running:
                end(broker)
            return not broker.running

        until(ended, "a signal to be heeded")
        assert broker.wait() == -signal.SIGTERM
    assert not (broker.data_dir / MARKER).exists()


def test_the_marker_names_the_run_that_wrote_it(broker: BrokerProcess) -> None:
    """A directory that was away during a run would look like the newest."""
    epochs = []
    for _ in range(3):
        broker.stop()
        epochs.append(json.loads((broker.data_dir / MARKER).read_text())["brokerEpoch"])
        broker.start()
    assert epochs == [0, 1, 2]
    assert "was last closed" not in broker.output()
    broker.stop()
    (broker.data_dir / MARKER).write_text('{"version":0,"brokerEpoch":1}')
    broker.start()
    assert "was last closed by broker epoch 1, but the last run of this broker was 3" in broker.output()
