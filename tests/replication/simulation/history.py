"""One history under a seed: three brokers, a controller, clients and faults on virtual time, and what must hold.

committed   what any replica has below its high watermark is the same record for good, at the same offset
in sync     each replica in the controller's ISR has all that is committed, unless its process is gone
one leader  per leader epoch
a client    that asks for the end of the partition never gets a lesser one, whoever leads by then
acks=all    what was acknowledged is in the end in the log of each replica, at the offset that was said
agreement   in the end the logs of all replicas are the same below the high watermark, byte for byte
progress    when the faults end, all replicas come back in sync and everything gets committed
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.errors import KafkaError
from kbroker.metadata.image import NO_LEADER
from kbroker.replication.partition import Partition, Role
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.log_values import AppendResult
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition
from tests.replication.cluster.controller import CONTROLLER, HandController
from tests.replication.simulation.network import Network
from tests.replication.simulation.node import TEST_TOPIC, SimNode
from tests.replication.simulation.virtual_loop import VirtualLoop, run_virtually
from tests.storage.batches import batch, read_all

NAME = TopicPartition(TEST_TOPIC, 0)
NODES = (1, 2, 3)
STEP_SECONDS = 0.01
SETTLE_SECONDS = 20.0
FAULTS = ("crash", "crash", "restart", "restart", "separate", "heal", "depose", "slow", "elect", "break", "hang")
RELEASES = ("3.9", "3.9", "2.8", "2.6")
FIRST_FETCH_WITH_EPOCHS = 15


class ViolationError(AssertionError):
    """What must hold does not."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long a history is, and how rough."""

    steps: int = 60
    breaks: float = 0.01
    fault_chance: float = 0.06
    step_seconds: float = STEP_SECONDS


class History:
    scale = Scale()

    def __init__(self, seed: int, directory: Path, scale: Scale) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.scale = scale
        self.network = Network(self.loop, self.rng, scale.breaks)
        self.min_in_sync = self.rng.choice((1, 2))
        release = self.rng.choice(RELEASES)
        # Where fetches name no broker epoch a controller may take a replica into the ISR that has begun anew since, as
        # Kafka's does: without the end of its log nothing is safe from it (KIP-903).
        self._names_epochs = PROTOCOL_VERSIONS[release].fetch >= FIRST_FETCH_WITH_EPOCHS
        self.nodes = {each: self.make_node(each, directory / str(each), release) for each in NODES}
        self.committed: dict[int, bytes | None] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.leaders: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int]] = {}
        self.events: list[str] = []
        self.failures: list[str] = []
        self.loop.set_exception_handler(self._on_failure)
        self._epoch = 10
        self._value = 0
        self._client_epoch = -1
        self._client_end = 0
        self._down: set[int] = set()
        self._background: set[asyncio.Task[Any]] = set()

    # The controller, and what it knows

    def make_node(self, node_id: int, directory: Path, release: str) -> SimNode:
        return SimNode(node_id, directory, self.network, self.min_in_sync, release)

    async def begin(self) -> None:
        """A controller, and a topic."""
        self.controller = HandController(transport=self.network.transport(CONTROLLER))
        self.network.servers[CONTROLLER] = self.controller.answer
        for each in NODES:
            self._start(each)
        self._later(self.controller.create(TEST_TOPIC, [self.rng.sample(NODES, 3)]))
        await asyncio.sleep(0.05)

    def isr(self) -> Sequence[int]:
        """Who is in sync, as far as the controller has granted it."""
        return self.controller.image(TEST_TOPIC).isr

    def came(self, node_id: int) -> None:
        """A broker's process has begun."""
        self._later(self.controller.came(node_id, node_id, self._epoch, host=str(node_id)))

    def may_start(self, _node_id: int) -> bool:
        return True

    def may_crash(self) -> bool:
        return True

    def died(self, node_id: int) -> None:
        """The cluster is to know that a process is gone."""
        self._later(self.controller.died(node_id))

    def depose(self, node_id: int) -> None:
        """The controller takes a broker for dead that goes on; it comes back with another epoch."""
        self.note(f"the controller takes {node_id} for dead")
        self._later(self.controller.died(node_id))
        self.loop.call_later(self.rng.uniform(0.05, 1.0), self._renewed, node_id)

    def elect(self) -> None:
        image = self.controller.image(TEST_TOPIC)
        candidates = [each for each in image.isr if self.controller.nodes[each].alive]
        if candidates:
            leader = self.rng.choice(candidates)
            self.note(f"{leader} is elected")
            self._later(self.controller.elect(NAME, leader))

    def help(self, *, late: bool) -> None:
        """What a controller would do by itself, when the faults have ended; `late`: for some time."""
        for each in NODES if late else ():
            if not self.controller.nodes[each].alive:
                self._renewed(each)
        if self.controller.image(TEST_TOPIC).leader == NO_LEADER:
            self.elect()

    def _on_failure(self, _loop: object, context: dict[str, Any]) -> None:
        """A part of a broker has failed, where none may."""
        self.failures.append(repr(context.get("exception") or context.get("message")))

    def note(self, text: str) -> None:
        self.events.append(f"{self.loop.time():8.3f} {text}")

    # What happens

    async def run(self) -> None:
        await self.begin()
        for _ in range(self.scale.steps):
            await asyncio.sleep(self.rng.uniform(0, 2 * self.scale.step_seconds))
            for _ in range(self.rng.randint(0, 3)):
                self._produce()
            if self.rng.random() < self.scale.fault_chance:
                self._fault()
            self.observe()
            await self._ask_for_the_end()
        await self._settle()

    def _later(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _start(self, node_id: int) -> None:
        self._epoch += 1
        self._down.discard(node_id)
        self.nodes[node_id].start(self._epoch)
        self.note(f"broker {node_id} starts in broker epoch {self._epoch}")
        self.came(node_id)

    def _produce(self) -> None:
        """To whatever broker takes itself for the leader."""
        led = [each for each in self.nodes.values() if (found := each.hosted()) and found.role is Role.LEADER]
        if not led:
            return
        node = self.rng.choice(led)
        partition = node.hosted()
        assert partition is not None
        self._value += 1
        value = b"%d" % self._value
        try:
            partition.check_in_sync()
            result = self.append(node, partition, value)
        except KafkaError:
            return

        def settled(error: KafkaError | None) -> None:
            if error is None:
                self.acknowledged[result.first_offset] = value

        partition.wait(result.last_offset, True, settled)

    def faults(self) -> Sequence[str]:
        """What may happen by now."""
        return FAULTS

    def append(self, node: SimNode, partition: Partition, value: bytes) -> AppendResult:
        return node.replicas.append(partition, batch([value]), origin=AppendOrigin.CLIENT)

    def read(self, log: UnifiedLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every record from `start` on."""
        return read_all(log, start)

    def _fault(self) -> None:
        rng = self.rng
        kind = rng.choice(self.faults())
        node_id = rng.choice(NODES)
        if kind == "crash" and len(self._down) < 2 and node_id not in self._down and self.may_crash():
            self._crash(node_id)
        elif kind == "restart" and (startable := [each for each in sorted(self._down) if self.may_start(each)]):
            self._start(rng.choice(startable))
        elif kind == "separate":
            other = rng.choice((*NODES, CONTROLLER))
            if other != node_id:
                self.note(f"{node_id} and {other} cannot reach each other")
                self.network.separate(node_id, other)
        elif kind == "heal":
            self.note("all reach each other")
            self.network.heal()
        elif kind == "depose" and node_id not in self._down:
            self.depose(node_id)
        elif kind == "slow":
            self.network.slowness = rng.choice((1.0, 1.0, 10.0))
        elif kind == "elect":
            self.elect()
        elif kind == "break":
            for each in [each for each in self.network.connections if node_id in (each.source, each.target)]:
                each.end(self.network.delay())
        elif kind == "hang":
            self.note(f"broker {node_id} hangs")
            self.network.hang(node_id, rng.uniform(0.05, 0.6))

    def _crash(self, node_id: int) -> None:
        isr = self.isr()
        others = any(each in isr and each not in self._down for each in NODES if each != node_id)
        loses = self.rng.random() < 0.5 and (node_id not in isr or others) and self._names_epochs
        self.crash(node_id, loses=loses)

    def crash(self, node_id: int, *, loses: bool) -> None:
        self.note(f"broker {node_id} crashes{', the end of its log is torn' if loses else ''}")
        self.nodes[node_id].crash(self.rng, loses=loses)
        self._down.add(node_id)
        self.seen.pop(node_id, None)
        if loses:
            self.died(node_id)
        else:
            self.loop.call_later(self.rng.uniform(0, 0.3), self._session_ended, node_id)

    def _session_ended(self, node_id: int) -> None:
        if node_id in self._down:
            self.died(node_id)

    def _renewed(self, node_id: int) -> None:
        if node_id not in self._down:
            self._epoch += 1
            self.nodes[node_id].epoch = self._epoch
            self._later(self.controller.came(node_id, node_id, self._epoch, host=str(node_id)))

    # What must hold

    def may_be_behind(self, _partition: Partition) -> bool:
        """Whether a replica that is in sync may lack for a moment what is committed."""
        return False

    def observe(self) -> None:
        if self.failures:
            raise ViolationError(f"failed: {self.failures[0]}")
        for node in self.nodes.values():
            partition = node.hosted()
            if partition is not None:
                self._look(node, partition)
        end = max(self.committed, default=-1) + 1
        for each in self.isr():
            partition = self.nodes[each].hosted()
            if partition is not None and partition.log.log_end_offset < end and not self.may_be_behind(partition):
                raise ViolationError(
                    f"{each} is in sync and ends at {partition.log.log_end_offset}, committed is up to {end}"
                )

    async def _ask_for_the_end(self) -> None:
        """As a client does that knows the newest leader epoch so far (KIP-320)."""
        led = [each for each in self.nodes.values() if (found := each.hosted()) and found.role is Role.LEADER]
        for node in led:
            partition = node.hosted()
            if partition is None or partition.leader_epoch < self._client_epoch:
                continue
            try:
                end = await node.latest(partition.leader_epoch)
            except KafkaError:
                continue
            if end < self._client_end:
                raise ViolationError(f"{node.node_id} says {end} to a client that was told {self._client_end}")
            self._client_epoch, self._client_end = partition.leader_epoch, end

    def _look(self, node: SimNode, partition: Partition) -> None:
        log = partition.log
        if partition.role is Role.LEADER:
            known = self.leaders.setdefault(partition.leader_epoch, node.node_id)
            if known != node.node_id:
                raise ViolationError(f"{known} and {node.node_id} lead in epoch {partition.leader_epoch}")
        checked = min(self.seen.get(node.node_id, (0, 0))[1], log.high_watermark)
        if checked < log.high_watermark:
            for offset, value in self.read(log, checked):
                if offset < log.high_watermark and self.committed.setdefault(offset, value) != value:
                    raise ViolationError(f"{node.node_id} has {value!r} at {offset}, was {self.committed[offset]!r}")
        self.seen[node.node_id] = (partition.leader_epoch, log.high_watermark)

    async def _settle(self) -> None:
        """The faults end."""
        self.note("the faults end")
        self.network.heal()
        self.network.breaks, self.network.slowness = 0.0, 1.0
        for each in sorted(self._down):
            if self.may_start(each):
                self._start(each)
        deadline = self.loop.time() + SETTLE_SECONDS
        while not self._is_settled():
            if self.loop.time() > deadline:
                raise ViolationError(f"the replicas do not come together: ISR {self.isr()}")
            await asyncio.sleep(0.1)
            self.observe()
            await self._ask_for_the_end()
            self.help(late=self.loop.time() > deadline - SETTLE_SECONDS + 2)
        contents = {each: self.read(self.nodes[each].logs.logs[NAME]) for each in NODES}
        first = contents[NODES[0]]
        for each, found in contents.items():
            if found != first:
                raise ViolationError(f"the logs of {NODES[0]} and {each} differ")
        by_offset = dict(first)
        for offset, value in (self.acknowledged | self.committed).items():
            if by_offset.get(offset) != value:
                raise ViolationError(f"{value!r} at {offset} was acknowledged, there is {by_offset.get(offset)!r}")

    def _is_settled(self) -> bool:
        if len(self.isr()) < len(NODES):
            return False
        partitions = [node.hosted() for node in self.nodes.values()]
        ends = {(each.log.log_end_offset, each.log.high_watermark) for each in partitions if each is not None}
        return None not in partitions and len(ends) == 1 and len(set(next(iter(ends)))) == 1


def play(seed: int, scale: Scale | None = None, kind: type[History] = History) -> History:
    """Runs one history.  ViolationError with what happened in it."""
    directory = Path(tempfile.mkdtemp(prefix="kbroker-history-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    history = kind(seed, directory, scale or kind.scale)
    before = logging.root.manager.disable
    # What brokers say of each fault is no news.
    logging.disable(logging.CRITICAL)
    try:
        run_virtually(history.run(), history.loop)
    except Exception as error:
        events = "\n".join(history.events)
        raise ViolationError(f"seed {seed}: {error!r}\n{events}") from error
    finally:
        logging.disable(before)
        for node in history.nodes.values():
            node.logs.close()
        shutil.rmtree(directory, ignore_errors=True)
    return history
