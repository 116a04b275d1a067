"""Topics on their way out: first for clients, then from the disks of all replicas, then from ZooKeeper.

The deletion waits for replicas whose broker is away: the topic's znodes stay until the broker is back and has deleted
its replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.context import of_topics
from kbroker.schemas import wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.changes import StateChanges

logger = logging.getLogger("kbroker.cluster")


class TopicDeletion:
    """`finished()` is called when a topic may be gone from all disks; `run` then removes its znodes."""

    def __init__(self, changes: StateChanges, finished: Callable[[], None]) -> None:
        self._changes = changes
        self._finished = finished
        self._pending: dict[str, set[tuple[TopicPartition, int]]] = {}

    def begin(self, names: Iterable[str]) -> None:
        """Take topics from clients and have their replicas deleted."""
        context = self._changes.context
        new = [name for name in names if name in context.image.topics and name not in self._pending]
        if not new:
            return
        context.deleting.update(new)
        topics = [context.image.topics[name] for name in new]
        self._changes.send_metadata(of_topics(topics))
        for topic in topics:
            logger.info("deleting topic %s", topic.name)
            self._pending[topic.name] = {
                (TopicPartition(topic.name, each.partition), node_id)
                for each in topic.partitions
                for node_id in each.replicas
            }
        self.resume(topics_named=new)

    def resume(self, node_id: int | None = None, topics_named: Iterable[str] | None = None) -> None:
        """Ask brokers, or one that has come back, to delete what they still have."""
        wanted: dict[int, list[TopicPartition]] = {}
        for topic in list(self._pending) if topics_named is None else topics_named:
            for name, holder in sorted(self._pending[topic]):
                if node_id in (None, holder):
                    wanted.setdefault(holder, []).append(name)
        for holder, names in wanted.items():
            self._changes.stop(holder, names, delete=False)
            self._changes.stop(holder, names, delete=True, answered=self._answered(holder, names))
        if any(not left for left in self._pending.values()):
            self._finished()

    def _answered(self, node_id: int, names: list[TopicPartition]) -> Callable[[wire.StopReplicaResponse], None]:
        def take(answer: wire.StopReplicaResponse) -> None:
            if answer.error_code:
                return
            failed = {
                TopicPartition(row.topic_name, row.partition_index) for row in answer.partition_errors if row.error_code
            }
            for name in names:
                if name not in failed and name.topic in self._pending:
                    self._pending[name.topic].discard((name, node_id))
            if any(not left for left in self._pending.values()):
                self._finished()

        return take

    async def run(self) -> list[str]:
        """Remove the znodes of topics that no disk has any more; their names."""
        done = [name for name, left in self._pending.items() if not left]
        for name in done:
            await self._remove(name)
        return done

    async def _remove(self, name: str) -> None:
        context, writer = self._changes.context, self._changes.writer
        topic = context.image.topics.get(name)
        indexes = range(len(topic.partitions)) if topic is not None else range(0)
        await writer.delete_each(paths.state(name, index) for index in indexes)
        await writer.delete_each(paths.partition(name, index) for index in indexes)
        await writer.delete(paths.partitions(name))
        await writer.delete(paths.topic(name))
        await writer.delete(paths.topic_config(name))
        await writer.delete(paths.deletion(name))
        self._pending.pop(name, None)
        context.drop_topic(name)
        logger.info("deleted topic %s", name)

    def forget(self, name: str) -> None:
        """A topic whose znodes others have removed."""
        self._pending.pop(name, None)
