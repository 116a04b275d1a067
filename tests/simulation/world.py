"""One history: a broker as it runs in production, on a simulated machine, and clients whose answers are judged.

A broker is `kbroker.broker.Broker` with nothing replaced: its loop, its threads and its network are the simulation's,
its files are real ones, in memory where the system has that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from tests.simulation.administration.feature import Administration
from tests.simulation.broker_settings import PORT, drawn_settings, host_of
from tests.simulation.clients import draw_clients
from tests.simulation.connection import ModelConnection
from tests.simulation.disk_faults import DiskFaults
from tests.simulation.encrypted import OVER_TLS, Encryption, is_encrypted
from tests.simulation.encrypted import PORT as TLS_PORT
from tests.simulation.expiring_sessions import drawn_reauth_ms
from tests.simulation.features import coordinator_settings, draw_features
from tests.simulation.garbage import Garbage
from tests.simulation.judge import Judge, Partition, ViolationError
from tests.simulation.kept_sessions import SessionWitness
from tests.simulation.leftovers import dispose, leftovers
from tests.simulation.log_life import LogLife
from tests.simulation.loop import OUTSIDE, Process, SimulatedLoop
from tests.simulation.lost_store import lose_store
from tests.simulation.reading_back import read_back
from tests.simulation.replication_witness import Term, Witness
from tests.simulation.scale import Outcome, Scale
from tests.simulation.sockets import Network
from tests.simulation.standstill import Standstill
from tests.simulation.topics import Topic, create_topics
from tests.simulation.transactions.ledger import TransactionLedger
from tests.simulation.unauthenticated_clients import is_secured

if TYPE_CHECKING:
    from tests.simulation.client import Client

LATER = 0x1A7E
SETTLE_SECONDS, CHECK_SECONDS, MOMENT_SECONDS, FORGETS_SECONDS = 15.0, 1.0, 0.5, 2.0


class World:
    """The parts of one history."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        self.scale = scale
        self.folder = folder
        self.loop = SimulatedLoop(seed)
        self.rng = random.Random(self.loop.rng.getrandbits(64))
        self.later = random.Random(seed ^ LATER)  # Of what came later: the rest of a seed stays what it was.
        self.network = Network(self.loop)
        self.judge = Judge(self.loop.time)
        self.garbage = Garbage(self.judge)
        self.nodes = range(1, scale.nodes + 1)
        self.brokers: dict[int, Broker] = {}
        self.starting: dict[int, Broker] = {}
        """Brokers whose start others may see before it has come to its end."""
        self.fails = self.rng.random() < scale.crashes
        self.controllers_lost_at = -math.inf
        """When one was last out of reach; brokers then forward again what was asked for once, as Kafka's do."""
        self.processes: dict[int, Process] = {}
        self.torn: set[int] = set()
        """Nodes that have lost their power, and perhaps what they had not synced."""
        self.topics: dict[str, Topic] = {}
        self.connections: list[ModelConnection] = []
        self.is_crowd = self.rng.random() < 0.4  # All producers press for the same few partitions, without a pause.
        self.pauses: tuple[float, ...] = (0.0, 0.0001, 0.001, 0.02)
        """Seconds that clients let pass at times."""
        self.may_lead_twice = False
        """Whether a broker may take itself for a leader while another one is."""
        self.timeouts_ms: tuple[int, ...] = (20_000,)
        """For how long producers wait for a commit."""
        self.is_large = self.rng.random() < 0.08
        """Whether most requests are large, and memory for them is short."""
        self.has_old_formats = False
        """Whether all topics are stored in a format from before batches."""
        self.has_virtual_time = True
        """Whether hours pass at once."""
        self.has_topic_ids = True
        """Whether all brokers know topics by their ids."""
        self.keeps_order = True
        """Whether partitions of an answer come in the order of the request."""
        self.administration = Administration(self)
        self.transactions = TransactionLedger(self.judge, self.loop.time)
        self.standstill = Standstill(self)
        self.at_end: list[Callable[[], Awaitable[None]]] = []
        """What is judged when all clients are through."""
        self.serves_new_groups = scale.nodes == 1
        """Whether there are consumer groups of KIP-848 and share groups, set up as the simulation has them."""
        self.has_features = scale.nodes == 1
        """Whether levels of features can be set, as without ZooKeeper."""
        self.has_short_sessions = True
        """Whether members of groups may be taken for dead within a second."""
        self.transaction_version = 0
        """The level of the feature: 2 has an epoch for each transaction."""
        self.group_partitions = 1
        self.lives: list[LogLife] = []
        self.has_zstd = False
        """Whether a producer compresses in a way that old consumers do not know."""
        self.writers_done = False
        self.topic_names: dict[bytes, str] = {}
        self._correlation_ids: set[int] = set()
        self._shared_settings = coordinator_settings(self.rng, scale.nodes)
        self.replicas = scale.nodes
        """How many of each partition there are."""
        self._settings: dict[int, dict[str, str]] = {}
        self.crashes: dict[int, int] = {}
        self.stopped_at = -math.inf
        """What was sent until then may be forgotten but for each producer's last batch: by a stop, or two crashes."""
        self.away_at: dict[int, float] = {}
        """When its controller took a broker for gone last, which learns later that it led nothing."""
        self.crashed_at: dict[int, float] = {}
        """When a broker was lost last."""
        self._value = 0
        self.disks = DiskFaults(self)
        self.witness = Witness()
        self.fetch_sessions = SessionWitness(self.judge, self.setting)
        self.forgets_after = FORGETS_SECONDS if not self.fails and self.rng.random() < 0.3 else math.inf
        """For how long brokers know a producer that is silent."""
        self.producer_ids: set[int] = set()
        """Those that were given out."""
        self.racks: dict[int, str] = {}
        """Where brokers stand, if consumers are to read from the nearest."""
        self.is_measured = self.loop.budget is not None
        self.is_secured = is_secured(seed, scale.nodes)
        """Whether there is a listener that authenticates, too, and an authorizer."""
        self.reauth_ms = drawn_reauth_ms(seed)
        has_tls = is_encrypted(seed, scale.nodes) and not self.is_measured
        self.encryption = Encryption(self) if has_tls else None

    # What clients ask

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.loop.time() * 1000)

    def next_value(self, pad: int) -> bytes:
        """A value that no other record has."""
        self._value += 1
        value = b"%d" % self._value
        return value if pad == 0 else value + b" " + b"x" * self.rng.randrange(pad)

    def _next_correlation_id(self) -> int:
        while (found := self.rng.getrandbits(31)) in self._correlation_ids:
            pass
        self._correlation_ids.add(found)
        return found

    def topic_name(self, topic_id: bytes) -> str:
        return self.topic_names.get(bytes(topic_id), "?")

    def tolerates(self, code: int, partition: Partition | None = None) -> bool:
        """Whether an answer may have this error here, and now; for a partition, where it is about one."""
        return self.disks.explain(partition, code)

    @property
    def may_lose_leaders(self) -> bool:
        """Whether another broker may come to lead a partition."""
        return self.fails and self.scale.nodes > 1

    async def leader(self, partition: Partition) -> int:
        """Whom a client takes for the leader."""
        return 1

    async def find_leader(self, partition: Partition) -> int | None:
        """Whom a client takes for the leader, if there is one."""
        return 1

    def leads(self, node: int, partition: Partition) -> bool:
        """Whether clients take the node for the partition's leader, as far as they know."""
        return True

    def is_led_by(self, node: int, partition: Partition) -> bool:
        """Whether the node itself takes itself for the partition's leader."""
        return True

    def is_in_force(self, term: Term | None) -> bool:
        """Whether a leader's term goes on, for all who decide on it."""
        return True

    def forget_leader(self, partition: Partition) -> None:
        """A client was told that it is not."""

    async def connect(self, node: int, name: str, client_id: str, port: int | None = None) -> ModelConnection | None:
        """A connection to a broker, at another port than its usual one if need be; None where it is not there."""
        made = ModelConnection(name, self.loop, self.judge, client_id, self._next_correlation_id)
        try:
            host, usual = self.address(node)
            if port is None and self.encryption is not None and self.encryption.rng.random() < OVER_TLS:
                await self.network.connect(lambda: self.encryption.over(made), host, TLS_PORT)
            else:
                await self.network.connect(lambda: made, host, port or usual)
        except ConnectionRefusedError:
            return None
        made.node = node
        made.may_be_closed = self.disks.may_hang_up(node)
        self.connections.append(made)
        return made

    def own_clients(self) -> list[Client]:
        """Clients that this kind of histories alone has."""
        return []

    # Brokers

    def address(self, node: int) -> tuple[str, int]:
        """Where clients reach a broker."""
        return host_of(node), PORT

    def settings(self, node: int) -> dict[str, str]:
        return drawn_settings(self, node, self._shared_settings)

    def config(self, node: int) -> BrokerConfig:
        """A broker's settings, which stay over its restarts; its directory is another one after each."""
        settings = self._settings.get(node)
        if settings is None:
            settings = self._settings[node] = {**self.settings(node), **self.administration.settings()}
        return BrokerConfig.from_mapping({**settings, "log.dirs": ",".join(self.log_dirs(node))})

    def log_dirs(self, node: int) -> list[str]:
        """Where a broker's partitions are."""
        return self.disks.log_dirs(self._directory(node))

    def setting(self, node: int, name: str) -> str | None:
        """What a broker is set to."""
        return self._settings[node].get(name)

    @property
    def may_lag(self) -> bool:
        """Whether a follower may leave the ISR though nothing is wrong; on a narrow network 100 KB take seconds."""
        bound = 5_000 if self.network.weather.is_wide else 30_000
        return any(int(self.setting(node, "replica.lag.time.max.ms") or bound) < bound for node in self.nodes)

    def syncs_what_it_acknowledges(self, node: int) -> bool:
        return self._settings[node]["kbroker.fsync"] == "commit"

    def _directory(self, node: int) -> Path:
        return self.folder / f"{node}-{self.crashes.get(node, 0)}"

    async def crash(self, node: int) -> None:
        """End a broker from one moment to the next; where it syncs what it acknowledges, the machine as well."""
        self.garbage.look()
        has_power = not self.loses_power(node)
        self.judge.note("broker %d %s", node, "is killed" if has_power else "loses its power")
        for each in self.connections:
            if each.node == node:
                each.may_be_closed = True
        self.network.end_process(self.processes.pop(node))
        self._throw_away(node, self.brokers.pop(node), has_power=has_power)

    def _throw_away(self, node: int, broker: Broker, *, has_power: bool) -> None:
        """A broker is no more; the next one finds what is left on its disk."""
        rng, disk = self.rng, self.loop.disk
        before = self._directory(node)
        self.crashes[node] = self.crashes.get(node, 0) + 1
        self.stopped_at = max(self.stopped_at, min(self.crashed_at.get(node, -math.inf), self.loop.time()))
        self.crashed_at[node] = self.loop.time()
        if has_power:
            disk.after_kill(before, self._directory(node), rng)
        else:
            self.torn.add(node)
            disk.after_power_cut(before, self._directory(node), rng)
        dispose(broker)
        shutil.rmtree(before)
        self.garbage.broker_goes()

    def loses_power(self, node: int) -> bool:
        """Whether the machine ends with the broker that crashes now."""
        return self.syncs_what_it_acknowledges(node) and self.rng.random() >= 0.3 and self.bears_loss(node)

    def bears_loss(self, node: int) -> bool:
        """Whether nothing that is acknowledged depends on what a node has not synced."""
        return True

    def before_loss(self) -> None:
        """A broker is about to lose a directory."""

    async def may_return(self, node: int) -> None:
        """Wait until a node that has crashed may start."""

    async def fail_at_times(self) -> None:
        """Crashes, one after the other, until the clients are through."""
        rng = self.rng
        if not self.fails:
            return
        for _ in range(rng.randint(1, 4)):
            await self.next_moment(rng.choice((0.01, 0.1, 1.0)) * rng.random())
            if self.writers_done:
                break
            await self.fail()
            if any(topic.is_old for topic in self.topics.values()) and not await self.settle():
                break
        self.network.heal()

    async def settle(self) -> bool:
        """Wait until another fault may come where topics have no leader epochs; whether one may.

        A follower without epochs that begins a new one lacks what was committed until it has copied it again: a leader
        that is gone by then takes it along, as with Apache Kafka (KIP-101)."""
        await asyncio.sleep(SETTLE_SECONDS)
        return True

    async def next_moment(self, seconds: float) -> None:
        """Let so much time pass; at times until a producer is told then that it has been acknowledged."""
        await asyncio.sleep(seconds)
        if self.rng.random() < 0.4:
            told = self.judge.next_acknowledgement = self.loop.create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told, MOMENT_SECONDS)

    async def fail(self) -> None:
        """One fault, and the end of it."""
        rng = self.rng
        if await self.disks.happen():
            return
        node = rng.choice(self.nodes)
        await self.crash(node)
        await asyncio.sleep(rng.choice((0.0, 0.1, 10.0)) * rng.random())
        await self.may_return(node)
        await self.start(node)

    async def start(self, node: int) -> None:
        """Start a broker, in a process of its own."""
        process = self.processes[node] = Process(f"broker-{node}")
        config = self.config(node)
        self.judge.note("broker %d starts", node)

        async def begin() -> Broker:
            broker = Broker(config, self.loop)
            await broker.start()
            return broker

        self.brokers[node] = await process.call(self.loop.create_task, begin())
        process.serves = True
        self.watch(node)

    def watch(self, node: int) -> None:
        """A broker has started: those that see what it does inside begin."""
        self.disks.watch(node, self.brokers[node])
        self.fetch_sessions.watch(node, self.brokers[node])

    async def stop(self, node: int) -> None:
        """End a broker in order."""
        self.judge.note("broker %d stops", node)
        for each in self.connections:
            each.may_be_closed = True
        self.stopped_at = self.loop.time()
        self.garbage.look()
        process, broker = self.processes.pop(node), self.brokers.pop(node)
        process.serves = False
        broker.node.stopping.set()
        await process.call(self.loop.create_task, broker.stop())
        process.alive = False
        self.garbage.broker_goes()

    # The course of a history

    async def run(self) -> None:
        rng, scale = self.rng, self.scale
        self._check_soon()
        await self.start_all()
        await draw_features(self)
        await create_topics(self)
        await self.administration.begin()
        made = draw_clients(self, scale.requests, rng.randint(*scale.clients))
        writers = [each for each in made if not each.is_reader]
        readers = [each for each in made if each.is_reader]
        watch, create_task = self.standstill.watch, self.loop.create_task
        reading = [watch(each.name, create_task(each.run())) for each in readers]
        failing = create_task(self.fail_at_times())
        failing.add_done_callback(self.judge.faults_have_ended)
        await asyncio.gather(*(watch(each.name, create_task(each.run())) for each in writers))
        self.writers_done = True
        await failing
        for each in self.connections:
            each.wake()
        await asyncio.gather(*reading)
        await self.all_gone()
        await read_back(self)
        await self.all_gone()
        self.inspect()
        self.garbage.look()
        await self.stop_all()

    async def start_all(self) -> None:
        await self.start(1)

    async def stop_all(self) -> None:
        """The end of the history, at times behind another start."""
        kind = self.rng.random()
        if kind < 0.35:
            await self.stop(1)
            if kind < 0.05:
                await lose_store(self)
            else:
                await self.start(1)
                await read_back(self)
        await self.stop(1)

    async def make_topics(self, request: Any) -> Any:
        connection = await self.connect(1, "admin", "admin")
        if connection is None:
            return None
        answer = await connection.answer(request, 7)
        connection.finish(self.rng)
        return answer

    async def all_gone(self) -> None:
        """Wait until every connection is gone on both sides."""
        until = max(self.loop.time(), self.administration.muted_until) + 60.0
        for each in self.connections:
            each.may_be_closed = True
            if not each.gone:
                each.end.abort()
        while left := [each for each in self.network.ends if OUTSIDE in (each.process, each.peer.process)]:
            if self.loop.time() > until:
                self.judge.fail(f"connections that have ended are still there: {left}")
            await asyncio.sleep(0.01)
        self.connections.clear()

    def dispose(self) -> None:
        """Give back what brokers hold, however the history has ended."""
        for broker in self.brokers.values():
            dispose(broker)

    def inspect(self) -> None:
        """Nothing that belongs to an ended connection is left in the brokers."""
        for node, broker in self.brokers.items():
            left = leftovers(broker, self.processes[node], self.network)
            if any(left.values()):
                self.judge.fail(f"broker {node} keeps what belongs to connections that have ended: {left}")

    def _check_soon(self) -> None:
        self.loop.call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        now = self.loop.time()
        for each in self.connections:
            process = self.processes.get(each.node)
            if process is None or process.backlog is None:
                each.check(now)
        self.standstill.look(now)
        self._check_soon()


__all__ = ["Outcome", "Scale", "ViolationError", "World"]
