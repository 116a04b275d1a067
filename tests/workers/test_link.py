"""A worker's link to the controller: its image, its calls, and what becomes of them while worker 1 is away.

Also of `kbroker.cluster.workers.log_reports`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cluster.member import StartInterruptedError
from kbroker.cluster.requests import BrokerEpoch, HeldLog, NewTopic, ReplicaReport
from kbroker.cluster.stored_image import stored_image
from kbroker.cluster.workers import log_reports, portions
from kbroker.cluster.workers.controller_link import ControllerLink, Held, LinkState
from kbroker.cluster.workers.controller_server import ControllerServer
from kbroker.cluster.workers.host_controller import HostController
from kbroker.cluster.workers.member import FollowingWorker
from kbroker.cluster.workers.messages import Gone, Hello, encode
from kbroker.cluster.workers.remote_controller import RemoteController
from kbroker.cluster.workers.worker_slot import WorkerSlot
from kbroker.config import BrokerConfig
from kbroker.errors import NotControllerError, TopicAlreadyExistsError
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, PartitionImage
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.store import StoreCalls
from kbroker.types import TopicPartition

CONFIG = BrokerConfig.from_mapping({})
NOTHING = ReplicaReport()


class Office:
    """Worker 1, which can be started again on the socket of the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "metadata.sqlite"
        self.address = f"@kbroker-test-{secrets.token_hex(8)}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind("\0" + self.address[1:])
        self._socket.listen(16)

    async def open(self, awaited: set[int] | None = None) -> None:
        """Be in office; the workers that are awaited are to say what they hold."""
        loop = asyncio.get_running_loop()
        self._store = LocalStore.open(self._file)
        self.cache = MetadataCache(stored_image(self._store, CONFIG, 1))
        self.controller = HostController(
            self.cache, self._store, BrokerSettings(CONFIG, self.cache, 1), 1, Slices(loop)
        )
        self.controller.is_stopping = lambda: False
        self.server = ControllerServer(self.controller, self.cache, loop, Slices(loop))
        await self.controller.enter(BrokerImage(1, {}), NOTHING)
        if awaited is not None:
            self.server.log_reports.open(awaited, 3600)
        await self.server.listen(socket.socket(fileno=self._socket.dup().detach()))

    async def close(self) -> None:
        """Die."""
        self.controller.is_stopping = lambda: True
        self.server.close()
        self._store.close()

    def end(self) -> None:
        """The supervisor is gone."""
        self._socket.close()


class Node:
    """Another worker."""

    def __init__(self, office: Office, node_id: int) -> None:
        self.node_id = node_id
        self.stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.link = ControllerLink(office.address, node_id, loop, self.stopping, Slices(loop))

    async def come(self) -> None:
        """Follow, and enter."""
        self.cache = MetadataCache(await self.link.open())
        self.link.follow(self.cache)
        self.controller = RemoteController(self.link, self.cache)
        self.entered = await self.link.enter(BrokerImage(self.node_id, {}), NOTHING)


def play(directory: Path, story: Callable[[Office, Node], Awaitable[None]]) -> None:
    """A controller and worker 2, in one loop."""

    async def run() -> None:
        office = Office(directory)
        await office.open()
        node = Node(office, 2)
        await node.come()
        try:
            async with asyncio.timeout(60):
                await story(office, node)
        finally:
            node.stopping.set()
            node.link.close()
            await office.close()
            office.end()
            await asyncio.sleep(0)

    asyncio.run(run())


def holding(held: dict[TopicPartition, HeldLog]) -> Held:
    """Logs that go so far."""

    async def found() -> dict[TopicPartition, HeldLog]:
        return held

    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    while not condition():
        await asyncio.sleep(0.005)


def test_a_change_is_in_the_image_when_its_call_returns(tmp_path: Path) -> None:
    """A client would be told that its topic is there, and find none at the next request."""

    async def story(office: Office, node: Node) -> None:
        (outcome,) = await node.controller.create_topics([NewTopic("t", 2, 2)])
        assert outcome.topic is not None
        assert node.cache.topic("t") == outcome.topic == office.cache.topic("t")
        (again,) = await node.controller.create_topics([NewTopic("t", 2, 2)])
        assert isinstance(again.error, TopicAlreadyExistsError)
        assert node.cache.image.topics == office.cache.image.topics
        await office.controller.create_topics([NewTopic("of-another", 1, 1)])
        assert node.cache.topic("of-another") is None, "the news is on its way"
        await node.controller.ready(30_000)
        assert node.cache.topic("of-another") == office.cache.topic("of-another")

    play(tmp_path, story)


def test_the_end_of_a_worker_is_seen_at_once(tmp_path: Path) -> None:
    """Its partitions would be without a leader until a time-out."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 1, 2, [])])
        node.link.close()
        await until(lambda: office.cache.image.brokers[2].is_fenced)
        assert office.cache.image.topics["t"].partitions[0].isr == (1,)

    play(tmp_path, story)


def test_a_worker_that_was_killed_and_cannot_end_is_gone(tmp_path: Path) -> None:
    """One that waits for a disk keeps its connection open, and would lead what nobody serves until the disk answers."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 1, 2, [])])
        isrs: list[tuple[int, ...]] = []
        office.cache.subscribe(lambda _old, new, _delta: isrs.append(new.topics["t"].partitions[0].isr))
        node.stopping.set()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("\0" + office.address[1:])
            sock.send(encode(Gone(os.getpid() + 1)) + encode(Gone(os.getpid())))
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("\0" + office.address[1:])
            sock.send(encode(Gone(os.getpid())))
        await until(lambda: office.cache.image.brokers[2].is_fenced)
        assert isrs == [(1,)]

    play(tmp_path, story)


def test_a_controller_that_is_back_finds_its_workers_and_they_find_what_they_have_missed(tmp_path: Path) -> None:
    """Worker 1 would have to take the others down with it."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 2, 2), NewTopic("gone", 1, 1)])
        await office.close()
        await until(lambda: node.link.state is LinkState.AWAY)
        assert set(node.cache.image.topics) == {"t", "gone"}
        await office.open()
        gone = office.cache.image.topics["gone"].topic_id
        await office.controller.delete_topics([gone])
        await until(lambda: 2 in office.cache.image.brokers and node.cache.topic("gone") is None)
        assert office.cache.image.brokers[2].epoch == node.entered.epoch
        # That it has entered reaches the worker a moment later.
        await until(lambda: node.cache.image.brokers == office.cache.image.brokers)
        (outcome,) = await node.controller.create_topics([NewTopic("u", 1, 2)])
        assert outcome.error is None

    play(tmp_path, story)


def test_a_worker_that_is_back_is_not_taken_for_gone_when_its_earlier_connection_is_found_to_have_ended(
    tmp_path: Path,
) -> None:
    """It serves, with the epoch that it had, and nothing would be led by it any more until it is started again."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 1, 2)])
        calls: list[str] = []
        entering, losing = office.controller.enter, office.controller.lost

        async def enter(*arguments: Any) -> BrokerEpoch:
            calls.append("enter")
            return await entering(*arguments)

        async def lost(*arguments: Any) -> None:
            await losing(*arguments)
            calls.append("lost")

        office.controller.enter, office.controller.lost = enter, lost  # type: ignore[method-assign]
        for _ in range(2):
            # Each connection waits for its turn to enter, and ends before it has come.
            writer = node.link._writer
            assert writer is not None
            held = office.controller._changing
            if not held.locked():
                await held.acquire()
            before = calls.count("enter")
            writer.transport.abort()
            await until(lambda before=before: calls.count("enter") > before)
        held.release()
        await until(lambda: calls.count("lost") == 2)
        assert office.server.present == {2}
        assert not office.cache.image.brokers[2].is_fenced
        assert office.cache.image.topics["t"].partitions[0].leader > 0

    play(tmp_path, story)


def test_replicas_that_are_lost_are_reported_to_a_new_controller(tmp_path: Path) -> None:
    """It has never heard of the disk that failed, and would let the worker lead what it has not got any more."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 2, 2)])
        lost = frozenset({TopicPartition("t", 0)})
        await node.controller.report_replicas(node.entered, ReplicaReport(offline=lost))
        await office.close()
        await office.open()

        def partition() -> PartitionImage:
            return office.cache.image.topics["t"].partitions[0]

        await until(lambda: partition().offline_replicas == (2,))
        assert partition().leader == 1

    play(tmp_path, story)


def test_replicas_that_are_lost_are_reported_though_the_controller_goes_again_before_it_heard_of_them(
    tmp_path: Path,
) -> None:
    """The worker takes over the first one's image, in which they are there, and the next would hear nothing of them."""

    async def story(office: Office, node: Node) -> None:
        await node.controller.create_topics([NewTopic("t", 2, 2)])
        lost = frozenset({TopicPartition("t", 0)})
        await node.controller.report_replicas(node.entered, ReplicaReport(offline=lost))
        await office.close()
        await until(lambda: node.link.state is LinkState.AWAY)
        await office.open()
        async with office.controller._changing:
            await until(lambda: node.link.state is LinkState.FOLLOWING)
            assert node.cache.image.topics["t"].partitions[0].offline_replicas == ()
            await office.close()
        await until(lambda: node.link.state is LinkState.AWAY)
        await office.open()
        await until(lambda: 2 in office.cache.image.brokers)
        assert office.cache.image.topics["t"].partitions[0].offline_replicas == (2,)

    play(tmp_path, story)


def test_a_worker_knows_which_replicas_it_has_lost_before_the_controller_does(tmp_path: Path) -> None:
    """At a start it would make them anew and empty, and lead with them until the controller has heard of the disk."""

    async def story(office: Office, node: Node) -> None:
        await office.controller.enter(BrokerImage(3, {}), NOTHING)
        (outcome,) = await node.controller.create_topics([NewTopic("t", assignments=[(0, (3,))])])
        assert outcome.error is None
        loop = asyncio.get_running_loop()
        config = BrokerConfig.from_mapping({"node.id": "3"})
        third = FollowingWorker(
            WorkerSlot(3, 3, office.address), config, loop, Slices(loop), node.stopping, pytest.fail
        )
        image = await third.open(None, StoreCalls())
        assert image.cluster_id == office.cache.image.cluster_id
        cache = MetadataCache(image)
        third.load(cache)
        await third.report_logs(ReplicaReport(offline=frozenset({TopicPartition("t", 0)})), holding({}))
        assert cache.image.topics["t"].partitions[0].offline_replicas == (3,)
        await third.close()

    play(tmp_path, story)


def test_a_call_that_is_under_way_when_the_controller_goes_fails(tmp_path: Path) -> None:
    """It would wait for an answer for ever."""

    async def story(office: Office, node: Node) -> None:
        async with office.controller._changing:
            call = asyncio.ensure_future(node.controller.create_topics([NewTopic("t", 1, 1)]))
            await until(lambda: bool(office.server._tasks))
            office.server.close()
            with pytest.raises(NotControllerError):
                await call

    play(tmp_path, story)


def test_a_worker_that_is_to_stop_does_not_wait_for_the_controller(tmp_path: Path) -> None:
    """A host that is stopped while worker 1 loads its logs would hang."""

    async def run() -> None:
        office = Office(tmp_path)
        node = Node(office, 2)
        waiting = asyncio.ensure_future(node.link.open())
        await asyncio.sleep(0)
        node.stopping.set()
        with pytest.raises(StartInterruptedError):
            await waiting
        office.end()

    asyncio.run(run())


def test_a_worker_that_may_have_lost_records_waits_for_what_the_others_hold(tmp_path: Path) -> None:
    """It would lead on what is left, and the others be level with it before they could say that they have more."""

    async def story(office: Office, node: Node) -> None:
        first = TopicPartition("t", 0)
        await node.controller.create_topics([NewTopic("t", 1, 2)])
        leader = office.cache.image.topics["t"].partitions[0].leader
        other = 3 - leader
        office.server.log_reports.open({1, 2, 3}, 3600)
        held = holding({first: HeldLog(0, 10 if leader == 2 else 20, True)})
        mine = asyncio.ensure_future(node.link.report_logs(held))
        await office.server.log_reports.report_logs(3, {})
        own = {first: HeldLog(0, 10 if leader == 1 else 20, True)}
        await until(lambda: 2 not in office.server.log_reports._awaited)
        assert not mine.done()
        await office.server.log_reports.report_logs(1, own)
        await mine
        assert node.cache.image.topics["t"].partitions[0].leader == other
        assert office.server.log_reports.absent == set()

    play(tmp_path, story)


def test_a_worker_that_lives_on_says_how_far_its_logs_go_when_the_controller_starts(tmp_path: Path) -> None:
    """Worker 1 would be in sync, and come to lead, with less than is acknowledged, where its disk has lost the rest."""

    async def story(office: Office, node: Node) -> None:
        first = TopicPartition("t", 0)
        await node.controller.create_topics([NewTopic("t", 1, 2)])
        held = {first: HeldLog(0, 20, True)}
        await node.link.report_logs(holding(held))
        await office.close()
        await until(lambda: node.link.state is LinkState.AWAY)
        held[first] = HeldLog(0, 30, True)
        await office.open(awaited={1, 2})
        await office.server.log_reports.report_logs(1, {first: HeldLog(0, 10, True)})
        partition = office.cache.image.topics["t"].partitions[0]
        assert (partition.leader, partition.isr) == (2, (2,))

    play(tmp_path, story)


def test_many_rows_of_a_call_and_of_its_answer_go_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client that makes 1,500 topics would keep all others of two workers waiting."""
    most: list[int] = []

    def encoded(message: Any) -> bytes:
        for value in getattr(message, "arguments", (getattr(message, "value", None), getattr(message, "items", None))):
            if isinstance(value, (list, dict, tuple)):
                most.append(len(value))
        return encode(message)

    monkeypatch.setattr(portions, "encode", encoded)

    async def story(office: Office, node: Node) -> None:
        count = 3 * portions.MOST_ITEMS + 1
        names = [f"t{number}" for number in range(count)]
        found = await node.controller.create_topics([NewTopic(name, 1, 1) for name in names], validate_only=True)
        assert [each.name for each in found] == names
        assert [each.error for each in found] == [None] * count
        assert max(most) <= portions.MOST_ITEMS
        assert sum(most) >= 2 * count
        held = {TopicPartition(name, 0): HeldLog(0, 1, False) for name in names}
        await node.link.report_logs(holding(held))

    play(tmp_path, story)


def test_a_worker_that_does_not_come_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose disk is broken would keep the whole host from serving."""
    monkeypatch.setattr(log_reports, "LOOK_SECONDS", 0.01)

    async def story(office: Office, node: Node) -> None:
        first = TopicPartition("t", 0)
        await node.controller.create_topics([NewTopic("t", 1, 2)])
        reports = office.server.log_reports
        # The time is over when the others have been heard.
        reports.open({1, 2, 3}, 0.0, lambda _node_id: 2 in reports._awaited)
        await node.link.report_logs(holding({first: HeldLog(0, 10, True)}))
        assert reports.absent == {1, 3}

    play(tmp_path, story)


def test_a_worker_that_reads_its_logs_is_waited_for_until_it_is_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a power cut the first worker to be back would lead with less than the one that has more to read."""
    monkeypatch.setattr(log_reports, "LOOK_SECONDS", 0.01)

    async def story(office: Office, node: Node) -> None:
        first, reports = TopicPartition("t", 0), office.server.log_reports
        await node.controller.create_topics([NewTopic("t", 1, 2)])
        looks: list[int] = []

        def is_starting(node_id: int) -> bool:
            looks.append(node_id)
            return office.server.is_connected(node_id)

        reports.open({1, 2}, 0.0, is_starting)
        mine = asyncio.ensure_future(reports.report_logs(1, {first: HeldLog(0, 10, True)}))
        await until(lambda: len(looks) > 2)
        assert not mine.done()
        await node.link.report_logs(holding({first: HeldLog(0, 20, True)}))
        await mine
        assert office.cache.image.topics["t"].partitions[0].leader == 2

    play(tmp_path, story)


def test_a_worker_may_call_nothing_else(tmp_path: Path) -> None:
    """Any method of the controller's objects could be called by name."""

    async def story(office: Office, node: Node) -> None:
        with pytest.raises(NotControllerError):
            await node.link.call("image")
        with pytest.raises(NotControllerError):
            await node.link.call("_commit")

    play(tmp_path, story)


def test_what_is_no_message_ends_its_connection_alone(tmp_path: Path) -> None:
    """A process that dials the wrong socket would take the controller down."""

    async def story(office: Office, node: Node) -> None:
        for sent in (b"GET / HTTP/1.1\r\n\r\n", encode(Hello(9)) + encode(Hello(9)), b"\xff\xff\xff\xff"):
            sock = socket.socket(socket.AF_UNIX)
            sock.setblocking(False)
            sock.connect("\0" + office.address[1:])
            reader, writer = await asyncio.open_unix_connection(sock=sock)
            writer.write(sent)
            await reader.read(-1)
            writer.close()
        (outcome,) = await node.controller.create_topics([NewTopic("t", 1, 1)])
        assert outcome.error is None

    play(tmp_path, story)


def test_connections_of_other_users_are_refused_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any user of the machine could fill the disk with lines, as fast as a program can connect."""

    async def story(office: Office, node: Node) -> None:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        for _ in range(20):
            reader, writer = await asyncio.open_unix_connection("\0" + office.address[1:])
            assert await reader.read(-1) == b""
            writer.close()
        monkeypatch.undo()
        (outcome,) = await node.controller.create_topics([NewTopic("t", 1, 1)])
        assert outcome.error is None

    play(tmp_path, story)
    refused = [record for record in caplog.records if "refused" in record.getMessage()]
    assert len(refused) == 1 and f"user {os.geteuid()} " in refused[0].getMessage()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
