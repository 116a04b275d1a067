"""Faults of disks in the course of a history: what happens to a directory of a broker, and how that ends.

Passing faults (short writes, no room, slow fsyncs) end by themselves, and the broker goes on as if nothing had been.
After any other a directory stays offline until the broker is started again; one whose last directory has failed, or the
one with its metadata, ends by itself, as in production, and is started again on what is left.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.broker import Broker
from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaStorageError
from kbroker.host.halt import HALT_SECONDS
from tests.simulation.bad_disks import BadDisks, Wrong
from tests.simulation.loop import OUTSIDE, Process

if TYPE_CHECKING:
    from kbroker.config import LogConfig
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.types import TopicPartition
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

TAKING_PART = 0.4
"""The share of histories with faults that have those of disks as well."""
DISK_RATHER = 0.6
HANDED_OVER_SECONDS, BACK_SECONDS = 20.0, 15.0
FULL_FOR_LONG = 0.5
"""The share of faults of several brokers' disks in which one is full until others have to do its work."""
HEAL_SECONDS = 30.0
"""Within so long a broker notices that there is room again."""


class Kind(Enum):
    """What may happen to a disk."""

    SHORT_WRITES = "takes a part of each write"
    NO_ROOM = "has no room"
    SLOW = "takes its time for each fsync"
    WRITES_FAIL = "fails to write"
    READS_FAIL = "fails to read"
    SYNCS_FAIL = "fails to sync"
    ALL_FAILS = "is gone"


PASSING = frozenset({Kind.SHORT_WRITES, Kind.NO_ROOM, Kind.SLOW})
HARMLESS = frozenset({Kind.SHORT_WRITES, Kind.SLOW})
"""With these logs can be made all the same."""


@dataclass(slots=True)
class _Ailment:
    """A directory below which something is wrong, the partitions that lie there, and until when that may be felt."""

    folder: str
    kind: Kind
    partitions: frozenset[Partition]
    until: float = math.inf
    without_logs: set[Partition] = field(default_factory=set)
    """New partitions whose logs could not be made meanwhile."""


class DiskFaults:
    """Those of one history."""

    def __init__(self, world: World) -> None:
        self._world = world
        rng = world.rng
        self.take_part = world.fails and rng.random() < TAKING_PART
        self._directories = rng.choice((1, 2, 3) if self.take_part else (1, 1, 1, 2))
        self._ailing: dict[int, list[_Ailment]] = {}
        """What is or was wrong with each broker's disks."""
        self.halting: set[int] = set()
        """Brokers that end by themselves."""
        self.halted: Callable[[int], None] = lambda node: None
        """Told when the process of one has ended."""
        self._watches: set[asyncio.Task[None]] = set()
        if self.take_part:
            self._bad = world.loop.disk.bad = BadDisks(world.loop.rng)

    def log_dirs(self, directory: Path) -> list[str]:
        """The directories of a broker whose data lie there."""
        if self._directories == 1:
            return [str(directory)]
        return [str(directory / f"disk-{number}") for number in range(self._directories)]

    def watch(self, node: int, broker: Broker) -> None:
        """See to it that a broker that cannot go on ends, as its process would."""
        # It may be gone before the watch begins.
        process = self._world.processes[node]
        watch = OUTSIDE.call(self._world.loop.create_task, self._end_when_halted(node, broker, process))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        manager = broker.log_manager
        drop = manager.drop_failed

        def drop_failed() -> list[TopicPartition]:
            self._world.before_loss()
            return drop()

        manager.drop_failed = drop_failed  # type: ignore[method-assign]
        make = manager.get_or_create_log

        def get_or_create_log(
            name: TopicPartition, topic_id: bytes, config: LogConfig, *, is_known: bool = False
        ) -> UnifiedLog:
            try:
                return make(name, topic_id, config, is_known=is_known)
            except (OSError, KafkaStorageError):
                self._note_without_log(node, (name.topic, name.partition))
                raise

        manager.get_or_create_log = get_or_create_log  # type: ignore[method-assign]

    def explain(self, partition: Partition | None, code: int) -> bool:
        """Whether a disk is the reason for an error; None: of what is about no partition.

        Apache Kafka 4.3.1, too, answers KAFKA_STORAGE_ERROR, and nothing else, to Produce, Fetch and ListOffsets of a
        new partition for whose log there is no room, where another of its directories works; having taken the full one
        offline it does so until its next start, while kbroker makes the log once there is room.
        """
        if code not in {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
            return False
        now = self._world.loop.time()
        return any(
            now < each.until
            and (
                partition is None
                or partition in each.partitions
                or (partition in each.without_logs and code == ErrorCode.KAFKA_STORAGE_ERROR)
            )
            for each in itertools.chain(*self._ailing.values())
        )

    def takes_no_copy(self, folder: str) -> bool:
        """Whether something may be wrong with a directory that a partition is to move to."""
        now = self._world.loop.time()
        return any(now < each.until and each.folder == folder for each in itertools.chain(*self._ailing.values()))

    def may_hang_up(self, node: int) -> bool:
        """Whether a broker may end by itself."""
        return any(self._world.loop.time() < each.until for each in self._ailing.get(node, ()))

    async def happen(self) -> bool:
        """A fault of a disk, and its end; False where it is the turn of another one."""
        world = self._world
        rng = world.rng
        if not self.take_part or rng.random() > DISK_RATHER:
            return False
        node, kind = rng.choice(world.nodes), rng.choice((*Kind, Kind.NO_ROOM))
        is_long = len(world.nodes) > 1 and world.later.random() < FULL_FOR_LONG
        if is_long:
            kind = Kind.NO_ROOM
        folder = rng.choice(world.log_dirs(node))
        if is_long:
            folder = max(world.log_dirs(node), key=lambda each: len(self._partitions_below(node, each)))
        world.judge.note("the disk %s of broker %d %s", Path(folder).name, node, kind.value)
        ailment = _Ailment(folder, kind, self._partitions_below(node, folder))
        self._ailing.setdefault(node, []).append(ailment)
        for each in world.connections:
            if each.node == node:
                each.may_be_closed = True
        self._begin(node, folder, kind)
        await asyncio.sleep(rng.choice((0.02, 0.3, 3.0)) * rng.random())
        if is_long or (kind is Kind.NO_ROOM and rng.random() < 0.5):
            # Until others lead what has no room here.
            await asyncio.sleep(HANDED_OVER_SECONDS * (world.later.uniform(0.4, 1.0) if is_long else rng.random()))
        if kind in PASSING:
            self._end(node, folder)
            ailment.until = world.loop.time() + HEAL_SECONDS
            if is_long:
                # Until the broker follows what it has handed over.
                await asyncio.sleep(BACK_SECONDS * world.later.random())
            return True
        await asyncio.sleep(rng.choice((0.0, 0.5, 15.0)) * rng.random())
        # The broker itself does not see that the disk is good again.
        self._end(node, folder)
        await world.crash(node)
        await asyncio.sleep(rng.choice((0.0, 0.1, 10.0)) * rng.random())
        self.halting.discard(node)
        await world.may_return(node)
        await world.start(node)
        ailment.until = world.loop.time() + HEAL_SECONDS
        return True

    def _partitions_below(self, node: int, folder: str) -> frozenset[Partition]:
        logs = self._world.brokers[node].log_manager.logs
        return frozenset(
            (name.topic, name.partition) for name, log in logs.items() if log.directory.startswith(f"{folder}/")
        )

    def _note_without_log(self, node: int, partition: Partition) -> None:
        """A broker could not make the log of a new partition."""
        now = self._world.loop.time()
        for each in self._ailing.get(node, ()):
            if now < each.until and each.kind not in HARMLESS:
                each.without_logs.add(partition)

    def _begin(self, node: int, folder: str, kind: Kind) -> None:
        world = self._world
        rng = world.rng
        if kind is Kind.SLOW:
            world.loop.disk.slow_ns[f"broker-{node}"] = rng.choice((100_000_000, 3_000_000_000))
            return
        io = errno.EIO
        # What a kernel that lives on has is not lost where nobody asked for more than that.
        loses = world.syncs_what_it_acknowledges(node) and world.bears_loss(node)
        wrong = {
            Kind.SHORT_WRITES: Wrong(short_writes=rng.choice((0.3, 0.9))),
            Kind.NO_ROOM: Wrong(room=rng.choice((0, 0, 100, 5000)), tells=rng.random() < 0.6),
            Kind.WRITES_FAIL: Wrong(write_error=io),
            Kind.READS_FAIL: Wrong(read_error=io),
            Kind.SYNCS_FAIL: Wrong(sync_error=io, loses=loses),
            Kind.ALL_FAILS: Wrong(write_error=io, read_error=io, sync_error=io, loses=loses),
        }[kind]
        self._bad.put(folder, wrong)
        if wrong.loses:
            world.torn.add(node)

    def _end(self, node: int, folder: str) -> None:
        self._world.judge.note("the disk %s of broker %d is good again", Path(folder).name, node)
        self._world.loop.disk.slow_ns.pop(f"broker-{node}", None)
        self._bad.put(folder, None)

    async def _end_when_halted(self, node: int, broker: Broker, process: Process) -> None:
        world = self._world
        await broker.node.stopping.wait()
        if not broker.node.failed:
            return  # It was told to.
        # The folder has another name in each process.
        world.judge.note("broker %d halts: %s", node, broker.readiness.text.replace(str(world.folder), ""))
        if not self.may_hang_up(node):
            world.judge.fail(f"broker {node} halts: {broker.readiness.text}")
        self.halting.add(node)
        world.garbage.broker_goes()
        stop = process.call(world.loop.create_task, broker.stop())
        await asyncio.wait([stop], timeout=HALT_SECONDS)
        if stop.done() and not stop.cancelled():
            stop.exception()  # As in production it is enough that the broker has tried.
        if world.processes.get(node) is process:
            world.network.end_process(process)
            self.halted(node)
