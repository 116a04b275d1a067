"""All clusters on one page: what each has, what does not answer, and under whose name it is asked.

Also of `kbroker.console.clusters`, `kbroker.console.cluster_summary`, `kbroker.console.links`,
`kbroker.console.other_consoles` and `kbroker.registry.opener`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.console.cluster_summary import ClusterSummary
from kbroker.console.clusters import _line
from kbroker.console.other_consoles import AWAY_SECONDS, OtherConsoles, ask_console, proof_for, read_summary
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer
from tests.ports import free_port

SUMMARY = ClusterSummary("c", 1, "1.0", "", 2, 0, 3, 4, 5, 6, 7, 8)
LOGIN = ("ann", "secret of ann")


class Pretender(BaseHTTPRequestHandler):
    """Answers as it is told, and keeps what it was sent."""

    status, body, location = 200, b"{}", ""
    proofs: list[str]

    def do_GET(self) -> None:
        self.proofs.append(self.headers.get("Authorization", ""))
        self.send_response(self.status)
        if self.location:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pretender() -> Iterator[tuple[type[Pretender], str]]:
    """What it says, and its address."""
    handler = type("Handler", (Pretender,), {"proofs": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_port}/console/"
        server.shutdown()
        thread.join()


def test_every_cluster_has_a_line_and_one_that_is_away_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A person with five clusters would open five consoles, and take one that does not load for slow."""
    with BrokerProcess(tmp_path_factory.mktemp("there")) as there:
        there.create_topic("orders", 3)
        producer = Producer({"bootstrap.servers": there.bootstrap})
        for number in range(10):
            producer.produce("orders", str(number), partition=0)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": there.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        links = [
            f"There=http://127.0.0.1:{there.metrics_port}/console/",
            f"Away=http://127.0.0.1:{free_port()}/console/",
            f"Wrong=http://127.0.0.1:{there.metrics_port}/metrics",
        ]
        here_settings = {"kbroker.console.links": ",".join(links)}
        with BrokerProcess(tmp_path_factory.mktemp("here"), here_settings) as here:
            viewer = Viewer(here.metrics_port)
            # Each is asked by itself, and one that is slow for once is away for a while.
            told = viewer.wait(
                "clusters", lambda told: told["clusters"][1]["summary"] and "404" in told["clusters"][3]["problem"]
            )
            own, other, away, wrong = told["clusters"]
            assert own["is_here"] and own["summary"]["topic_count"] == 0 and own["is_whole"]
            has = other["summary"]
            assert (other["name"], other["problem"], other["is_whole"]) == ("There", "", True)
            # With the internal topic of offsets.
            assert (has["topic_count"], has["partition_count"], has["under_replicated_count"]) == (2, 3 + 50, 0)
            assert (has["broker_count"], has["missing_broker_count"], has["leaderless_count"]) == (1, 0, 0)
            assert (has["group_count"], has["lag"]) == (1, 6)
            assert has["cluster_id"] != own["summary"]["cluster_id"]
            assert (away["summary"], away["answered"]) == (None, 0) and "does not answer" in away["problem"]
            assert wrong["problem"] == "It answers with HTTP status 404"


def test_brokers_of_one_cluster_are_one_line() -> None:
    """Lag would be that of the groups of one broker, or a cluster stand there twice."""
    one, two = SUMMARY, replace(SUMMARY, node_id=2, lag=10, health="a disk is full")
    both = _line("B", "", [one, two], is_here=False)
    assert both.summary is not None and (both.summary.lag, both.summary.group_count) == (18, 14)
    assert (both.summary.health, both.answered, both.is_whole) == ("a disk is full", 2, True)
    half = _line("B", "", ["It does not answer.", two, two], is_here=False)
    assert half.summary is not None and (half.summary.lag, half.answered, half.is_whole) == (10, 1, False)
    mixed = _line("B", "", [one, replace(two, cluster_id="d")], is_here=False)
    assert mixed.summary is None and "lead to 2 clusters" in mixed.problem


def test_a_viewers_password_goes_only_where_nobody_else_reads_it(pretender: tuple[type[Pretender], str]) -> None:
    """A password would cross a network in the clear, or the broker ask under a name of its own."""
    assert proof_for("https://berlin.example/console/", LOGIN).startswith("Basic ")
    assert proof_for("http://[::1]:9644/console/", LOGIN)
    assert proof_for("http://localhost:9644/console/", LOGIN)
    assert not proof_for("http://berlin.example/console/", LOGIN)
    assert not proof_for("http://localhost.berlin.example/console/", LOGIN)
    assert not proof_for("https://berlin.example/console/", None)
    handler, address = pretender
    handler.body = json.dumps(asdict(SUMMARY)).encode()
    assert ask_console(address, LOGIN) == SUMMARY
    assert ask_console(address, None) == SUMMARY
    assert handler.proofs == [proof_for(address, LOGIN), ""]
    handler.status, handler.location = 302, address
    assert "HTTP status 302" in str(ask_console(address, LOGIN))
    assert len(handler.proofs) == 3


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "log in there"),
        (403, b'{"error": "This takes DESCRIBE on the cluster."}', "403: This takes DESCRIBE"),
        (503, b"[]", "HTTP status 503"),
        (200, b"[]", "no console"),
        (200, b"{}", "of this version"),
        (200, b"[" * 100_000, "no console"),
        (200, json.dumps({**asdict(SUMMARY), "lag": "many"}).encode(), "of this version"),
        (200, json.dumps({**asdict(SUMMARY), "lag": True}).encode(), "of this version"),
    ],
)
def test_what_is_no_line_of_a_console_says_why(
    pretender: tuple[type[Pretender], str], status: int, body: bytes, said: str
) -> None:
    """Whatever answers at an address could put anything on the page, or end it in an error of Python."""
    handler, address = pretender
    handler.status, handler.body = status, body
    assert said in str(ask_console(address, None))


def test_texts_of_others_are_cut() -> None:
    """A console gone mad would fill the page."""
    said = read_summary(json.dumps({**asdict(SUMMARY), "version": "x" * 1000}).encode())
    assert isinstance(said, ClusterSummary) and len(said.version) == 200


def test_consoles_are_asked_once_for_many_viewers_and_left_alone_while_they_are_away() -> None:
    """Each viewer would ask every cluster every few seconds, and hold threads for those that do not answer."""
    asked: list[tuple[str, object]] = []
    seconds = [0.0]

    def ask(address: str, login: object) -> ClusterSummary | str:
        asked.append((address, login))
        return SUMMARY if address == "there" else "away"

    async def scenario() -> None:
        consoles = OtherConsoles(ask, lambda: seconds[0])
        await asyncio.gather(*(consoles.said_by(address, None) for address in ("there", "gone") for _ in range(20)))
        assert sorted(asked) == [("gone", None), ("there", None)]
        # Another viewer's rights are others.
        await consoles.said_by("there", LOGIN)
        seconds[0] = AWAY_SECONDS - 1
        for address in ("there", "gone"):
            await consoles.said_by(address, None)
        assert [address for address, _ in asked].count("gone") == 1
        assert asked.count(("there", None)) == 2
        seconds[0] = AWAY_SECONDS
        assert await consoles.said_by("gone", None) == "away"
        assert [address for address, _ in asked].count("gone") == 2

    asyncio.run(scenario())
