"""The simulation's model clients and judge over real sockets: raw connections, many requests under way, every answer
judged.

What the simulation's `World` is for its clients this is for the same clients: time, chance, topics, leaders and
connections, over TCP on loopback.  A judge sees all rounds of a run; each round has clients of its own.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kbroker.schemas import wire
from tests.simulation.client import IN_DOUBT, NOT_NOW
from tests.simulation.clients import draw_clients
from tests.simulation.connection import ModelConnection
from tests.simulation.features import TRANSACTION_VERSION
from tests.simulation.fetchers import Fetcher, read_all
from tests.simulation.groups.committers import Committer
from tests.simulation.judge import Judge, Partition, ViolationError
from tests.simulation.kept_sessions import SessionWitness
from tests.simulation.replication_witness import Witness
from tests.simulation.transactions.ending import judge_transactions
from tests.simulation.transactions.ledger import TransactionLedger
from tests.simulation.world import Scale, Topic

if TYPE_CHECKING:
    from tests.simulation.sockets import End
    from tests.simulation.world import World

HOST = "127.0.0.1"
CHECK_SECONDS = 1.0
API_VERSIONS_VERSION = 3
METADATA_SECONDS = 60.0
ROUND_SECONDS = 300.0
EVENTS = 20_000
"""So much of what happened is kept for those who read a violation."""


class NotingLoop(asyncio.SelectorEventLoop):
    """A loop that has no use for the trace of a history."""

    def note(self, *what: object) -> None:
        """Nothing: each run is another one."""


class RunJudge(Judge):
    """A judge of a run that may take hours."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self._recent: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=EVENTS)

    def note(self, text: str, *values: object) -> None:
        self._recent.append((time.monotonic(), text, values))

    def story(self, last: int | None = None) -> str:
        self.events = list(self._recent)
        return super().story(last)


class TcpEnd:
    """A transport, as model connections know one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.paused = False
        self.closed = False

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def write_eof(self) -> None:
        # The broker may be gone by now.
        with suppress(OSError):
            self._transport.write_eof()

    def pause_reading(self) -> None:
        self.paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        if not self.closed:
            self._transport.resume_reading()

    def abort(self) -> None:
        """End it at once."""
        self.closed = True
        self._transport.abort()

    def reset(self) -> None:
        """The same, and the broker learns of it."""
        raw = self._transport.get_extra_info("socket")
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()


class TcpConnection(ModelConnection, asyncio.BufferedProtocol):
    """What asyncio takes for the connection's protocol."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(cast("End", TcpEnd(transport)))

    def connection_lost(self, error: Exception | None) -> None:
        self.end.closed = True
        super().connection_lost(error)


class RealWorld:
    """`ports`: of each broker by its id.  Errors that tell of a change of leaders only a cluster may show.
    `may_break`: brokers fail, and connections end at any moment."""

    def __init__(
        self,
        ports: Mapping[int, int],
        seed: int,
        replicas: int,
        *,
        is_kafka: bool = False,
        acks: tuple[int, ...] = (-1, -1, 1, 0),
        may_break: bool = False,
    ) -> None:
        self.ports = dict(ports)
        self.nodes = list(self.ports)
        self.scale = Scale(nodes=len(self.ports), acks=acks, aborts=0.005, crashes=0.0)
        self.loop: Any = asyncio.get_running_loop()
        self.rng = random.Random(seed)
        self.later = random.Random(seed + 1)
        self.encryption = None
        self.judge = RunJudge()
        self.topics: dict[str, Topic] = {}
        self.transactions = TransactionLedger(self.judge, self.loop.time)
        self.at_end: list[Callable[[], Awaitable[None]]] = []
        """What is judged when all clients are through."""
        self.serves_new_groups = False
        """Whether there are consumer groups of KIP-848 and share groups, set up as the simulation has them."""
        self.has_short_sessions = False
        self.pauses: tuple[float, ...] = (0.0, 0.0001, 0.001, 0.02)
        self.may_lead_twice = False
        self.timeouts_ms: tuple[int, ...] = (20_000,)
        self.is_large = False
        self.has_topic_ids = True
        self.has_zstd = False
        self.has_old_formats = False
        self.has_virtual_time = False
        self.administration = SimpleNamespace(clients=list)
        self.disks = SimpleNamespace(halting=())
        self.brokers: dict[int, Any] = {}
        self.starting: dict[int, Any] = {}
        self.processes: dict[int, Any] = {}
        """None can be looked into."""
        self.witness = Witness()
        self.fetch_sessions = SessionWitness(self.judge, self.setting)
        self.is_measured = False
        self.is_secured = False
        self.away_at: dict[int, float] = {}
        self.forgets_after = math.inf
        self.producer_ids: set[int] = set()
        self.racks: dict[int, str] = {}
        self.transaction_version = 0
        self.group_partitions = 50
        self.connections: list[ModelConnection] = []
        self.is_crowd = False
        # Apache Kafka's answers to Produce have partitions in the order of a hash table.
        self.keeps_order = self.judge.high_is_exact = not is_kafka
        self.writers_done = False
        self.stopped_at = -math.inf
        self._replicas = replicas
        self.fails = self._may_break = self.may_lose_leaders = may_break
        self.loop.set_exception_handler(self._note_failure)
        self._round_count = 0
        self._names: dict[bytes, str] = {}
        self._leaders: dict[Partition, int] = {}
        self._value = self._correlation_id = 0

    def log_dirs(self, _node: int) -> list[str]:
        """Where the broker has its partitions is its own affair: none is moved."""
        return []

    def setting(self, _node: int, _name: str) -> str:
        """Settings are not known."""
        return ""

    def _note_failure(self, _loop: object, context: Mapping[str, Any]) -> None:
        """A callback has failed: the judge has said why, or a client of the model is wrong."""
        if not self.judge.violations:
            self.judge.violations.append(f"{context['message']}: {context.get('exception')!r}")

    # What clients ask

    def now_ms(self) -> int:
        """The wall's clock."""
        return int(time.time() * 1000)

    def next_value(self, pad: int) -> bytes:
        """A value that no other record has."""
        self._value += 1
        return b"%d %s" % (self._value, b"x" * self.rng.randrange(pad) if pad else b"")

    def _next_correlation_id(self) -> int:
        self._correlation_id += 1
        # Far from what neighbours have.
        return self._correlation_id * 40_503 & 0x7FFFFFFF

    def topic_name(self, topic_id: bytes) -> str:
        """The name of a topic."""
        return self._names.get(bytes(topic_id), "?")

    def own_clients(self) -> list[Any]:
        """None besides those that every kind of history has."""
        return []

    def tolerates(self, code: int, _partition: Partition | None = None) -> bool:
        """Whether an answer may have this error here."""
        return len(self.ports) > 1 and (code in NOT_NOW or code in IN_DOUBT)

    async def leader(self, partition: Partition) -> int:
        """Whom the brokers call the leader."""
        until = time.monotonic() + METADATA_SECONDS
        while partition not in self._leaders:
            await self._learn(partition[0])
            if time.monotonic() > until:
                self.judge.fail(f"{partition} has no leader for {METADATA_SECONDS:.0f} s")
        return self._leaders[partition]

    def leads(self, node: int, partition: Partition) -> bool:
        """Whether the node is the leader, as far as clients know."""
        return self._leaders.get(partition) == node

    def forget_leader(self, partition: Partition) -> None:
        """A client was told that it is not."""
        self._leaders.pop(partition, None)

    async def connect(self, node: int, name: str, client_id: str) -> ModelConnection | None:
        """A connection; None where the broker is not there."""
        made = TcpConnection(name, self.loop, self.judge, client_id, self._next_correlation_id)
        try:
            await self.loop.create_connection(lambda: made, HOST, self.ports[node])
        except OSError:
            return None
        made.node = node
        made.may_be_closed = self._may_break
        self.connections.append(made)
        return made

    async def _learn(self, topic: str) -> None:
        row = wire.MetadataRequest.MetadataRequestTopic(name=topic)
        answer = await self._ask(self.rng.choice(self.nodes), wire.MetadataRequest(topics=[row]), 9)
        for found in () if answer is None else answer.topics:
            for each in found.partitions:
                if each.leader_id in self.ports:
                    self._leaders[found.name, each.partition_index] = each.leader_id
        if answer is None or not answer.topics[0].partitions:
            await asyncio.sleep(0.05)

    async def _ask(self, node: int, request: Any, version: int) -> Any:
        """The answer of a broker; None where that is not there."""
        connection = await self.connect(node, "admin", "admin")
        if connection is None:
            return None
        answer = await connection.answer(request, version)
        connection.finish(self.rng)
        return answer

    # The course of a run

    async def create_topics(self, wanted: Mapping[str, int]) -> None:
        """Topics with so many partitions; any broker answers, the controller makes them."""
        features = await self._ask(self.nodes[0], wire.ApiVersionsRequest(), API_VERSIONS_VERSION)
        levels = {each.name: each.max_version_level for each in features.finalized_features}
        self.transaction_version = levels.get(TRANSACTION_VERSION, 0)
        request = wire.CreateTopicsRequest
        rows = [
            request.CreatableTopic(name=name, num_partitions=count, replication_factor=self._replicas)
            for name, count in wanted.items()
        ]
        until = time.monotonic() + METADATA_SECONDS
        made: dict[str, Any] = {}
        while len(made) < len(wanted):
            for node in self.nodes:
                answer = await self._ask(node, request(topics=rows, timeout_ms=10_000), 7)
                made.update({} if answer is None else {row.name: row for row in answer.topics if row.error_code == 0})
                if len(made) == len(wanted):
                    break
            if time.monotonic() > until:
                self.judge.fail(f"topics cannot be made: {answer}")
        for name, count in wanted.items():
            topic_id = bytes(made[name].topic_id)
            self.topics[name] = Topic(name, topic_id, count)
            self._names[topic_id] = name
            for number in range(count):
                await self._until_led((name, number))

    async def _until_led(self, partition: Partition) -> None:
        """Until the leader serves: Apache Kafka's has heard of the topic a moment after it was made."""
        request = wire.ListOffsetsRequest
        row = request.ListOffsetsPartition(partition_index=partition[1], timestamp=-1)
        topics = [request.ListOffsetsTopic(name=partition[0], partitions=[row])]
        until = time.monotonic() + METADATA_SECONDS
        while True:
            answer = await self._ask(await self.leader(partition), request(replica_id=-1, topics=topics), 5)
            if answer is not None and answer.topics[0].partitions[0].error_code == 0:
                return
            self.forget_leader(partition)
            if time.monotonic() > until:
                self.judge.fail(f"{partition} has no leader that serves: {answer}")

    async def round(self, requests: int, clients: int) -> None:
        """Some clients with so many requests.  ViolationError where an answer is wrong or missing."""
        self.is_crowd = self.rng.random() < 0.4
        self.writers_done = False
        made = draw_clients(cast("World", self), requests, clients)
        self._round_count += 1
        for client in made:
            if isinstance(client, Committer):
                # Its group is its own: what one of that name has committed in an earlier round is still there.
                client.name += f"-{self._round_count}"
        writing = [self.loop.create_task(each.run()) for each in made if not isinstance(each, Fetcher)]
        reading = [self.loop.create_task(each.run()) for each in made if isinstance(each, Fetcher)]
        try:
            await self._until_done(writing)
            self.writers_done = True
            for each in self.connections:
                each.wake()
            await self._until_done(reading)
        finally:
            for task in writing + reading:
                task.cancel()
            await self._end_connections()

    async def _until_done(self, tasks: list[asyncio.Task[None]]) -> None:
        """Until all have ended; whatever the judge finds meanwhile, in a callback or not, ends it."""
        until = time.monotonic() + ROUND_SECONDS
        while True:
            done, left = await asyncio.wait(tasks, timeout=CHECK_SECONDS) if tasks else (set(), set())
            now = self.loop.time()
            for each in self.connections:
                if not each.gone:
                    each.check(now)
            if self.judge.violations:
                raise ViolationError(self.judge.violations[0])
            for task in done:
                task.result()
            if not left:
                return
            if time.monotonic() > until:
                self.judge.fail(f"{len(left)} clients are not through after {ROUND_SECONDS:.0f} s")

    async def _end_connections(self) -> None:
        """The loop may close behind this: none is left to be found by the garbage collector."""
        for each in self.connections:
            each.may_be_closed = True
            if not each.end.closed:
                each.end.abort()
        while not all(each.gone for each in self.connections):
            await asyncio.sleep(0)
        self.connections.clear()

    async def read_back(self) -> int:
        """Everything is where it was said to be, and transactions are whole; how many records there are."""
        try:
            return await self._read_back()
        finally:
            await self._end_connections()

    async def _read_back(self) -> int:
        count = 0
        for topic in self.topics.values():
            for number in range(topic.partitions):
                values, end = await self._read_all((topic.name, number))
                self.judge.read_back((topic.name, number), values, end)
                count += len(values)
        await judge_transactions(cast("World", self))
        for each in self.at_end:
            await each()
        return count

    async def _read_all(self, partition: Partition) -> tuple[dict[int, bytes], int]:
        """All of a partition, once it has a leader."""
        until = time.monotonic() + METADATA_SECONDS
        while True:
            connection = await self.connect(await self.leader(partition), "reader", "reader")
            if connection is not None:
                found = await read_all(connection, cast("World", self), partition)
                connection.finish(self.rng)
                if found is not None:
                    return found
            self.forget_leader(partition)
            if time.monotonic() > until:
                self.judge.fail(f"{partition} cannot be read")
            await asyncio.sleep(0.05)
