"""The znodes that brokers and tools leave in ZooKeeper for the controller: notifications of a lost log directory and of
ISRs written by leaders of old Kafka releases, and the reassignments and elections that old tools request.  Each znode
goes when it is dealt with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbroker.cluster.reassignments import target_replicas
from kbroker.cluster.requests import Reassignment
from kbroker.cluster.zookeeper import paths, transitions
from kbroker.cluster.zookeeper.context import lacks_state, with_state
from kbroker.cluster.zookeeper.work import Work
from kbroker.cluster.zookeeper.znodes import decode_log_dir_event, decode_partitions, decode_reassignment
from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.cluster.zookeeper.changes import StateChanges
    from kbroker.cluster.zookeeper.context import ControllerContext
    from kbroker.cluster.zookeeper.reader import ZnodeReader
    from kbroker.cluster.zookeeper.session import ZooKeeper
    from kbroker.cluster.zookeeper.work import WorkLeft
    from kbroker.cluster.zookeeper.writer import FencedWriter
    from kbroker.config import BrokerConfig
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

_Wish = TypeVar("_Wish")


class ControllerTerm(Protocol):
    """What of a term it takes; see `term.Term`."""

    context: ControllerContext
    changes: StateChanges
    reader: ZnodeReader
    writer: FencedWriter
    work: WorkLeft

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings by now."""

    async def complete_reassignments(self) -> None:
        """End the reassignments whose target's replicas are all in the ISR."""

    async def prefer(self, names: Iterable[TopicPartition]) -> None:
        """Elect preferred leaders where they can lead."""


class ZooKeeperRequests:
    """Reads what was left, and has the term deal with it."""

    def __init__(self, term: ControllerTerm, zookeeper: ZooKeeper) -> None:
        self._term = term
        self._zookeeper = zookeeper

    async def directories(self) -> None:
        """Ask a broker that has lost a directory for all its replicas: it answers which are gone."""
        watch = partial(self._term.work.mark, Work.DIRECTORIES)
        for name in await self._zookeeper.children(paths.LOG_DIR_EVENTS, watch):
            path = f"{paths.LOG_DIR_EVENTS}/{name}"
            found = await self._term.reader.read(path, decode_log_dir_event)
            if found is not None:
                held = [each for each, state in self._term.context.partitions() if found[0] in state.replicas]
                self._term.changes.send_states(held, only=found[0])
            await self._term.writer.delete(path)

    async def isr_changes(self) -> None:
        """Leaders of old Kafkas write their ISRs themselves."""
        watch = partial(self._term.work.mark, Work.ISR_CHANGES)
        for child in await self._zookeeper.children(paths.ISR_CHANGES, watch):
            path = f"{paths.ISR_CHANGES}/{child}"
            found = await self._term.reader.read(path, decode_partitions)
            states = await self._term.reader.states(() if found is None else found[0])
            read = {}
            for name, (state, version) in states.items():
                known = self._term.context.partition(name)
                if known is not None and version > known.partition_epoch:
                    read[name] = with_state(known, state, version)
            self._term.context.put_partitions(read)
            self._term.changes.send_metadata(read)
            await self._term.writer.delete(path)
            self._term.work.mark(Work.SETTLE)
            self._term.work.mark(Work.COMPLETIONS)

    async def reassignments(self) -> None:
        """What old tools wish for: the znode goes when all of it is done."""
        found = await self._wished(paths.REASSIGN_PARTITIONS, Work.REASSIGNMENTS, decode_reassignment)
        if not found:
            return
        context = self._term.context
        contexts = context.contexts(self._term.config)
        registered = frozenset(self._term.context.image.brokers)
        changed, pending = {}, False
        for name, replicas in found.items():
            each = self._term.context.partition(name)
            if each is None or lacks_state(each) or each.replicas == replicas:
                continue
            pending = True
            if set(target_replicas(each)) == set(replicas):
                continue
            try:
                changed[name] = transitions.reassigned(
                    each,
                    Reassignment(name, replicas),
                    registered,
                    contexts.of(context.image.topics[name.topic]),
                )
            except KafkaError as error:
                logger.error("%s is not reassigned to %s: %s", name, replicas, error)
                pending = len(found) > 1
        failed = await self._term.changes.commit(changed)
        if any(map(self._term.changes.has_sense, failed)):
            self._term.work.mark(Work.REASSIGNMENTS)
        await self._term.complete_reassignments()
        if not pending:
            await self._term.writer.delete(paths.REASSIGN_PARTITIONS)

    async def elections(self) -> None:
        """Elections of preferred leaders that old tools wish for."""
        found = await self._wished(paths.PREFERRED_ELECTION, Work.ELECTIONS, decode_partitions)
        if found is not None:
            await self._term.prefer(found)
            await self._term.writer.delete(paths.PREFERRED_ELECTION)

    async def _wished(self, path: str, work: Work, decode: Callable[[bytes | None], _Wish]) -> _Wish | None:
        if await self._zookeeper.exists(path, partial(self._term.work.mark, work)) is None:
            return None
        found = await self._term.reader.read(path, decode)
        if found is None and await self._zookeeper.exists(path) is not None:
            await self._term.writer.delete(path)
        return None if found is None else found[0]
