"""A controller's changes of partitions: written to ZooKeeper first, then sent to brokers.

When a write finds that others (a leader of an old Kafka, a person) have changed a state, the controller reads the state
again and goes on from what it finds.

Where an assignment changes as well, it is written behind the states.  A controller may end between any two steps, and
the next one goes on from what it finds.  So brokers hear

    of a move that begins                    behind both: none has a replica that ZooKeeper does not know
    of one that has ended or is called off   between them: the next controller still finds the move, and goes on with
                                             it; else no broker would hear that it has a replica to delete
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster.reassignments import is_reassigning
from kbroker.cluster.zookeeper import paths, transitions
from kbroker.cluster.zookeeper.context import ControllerContext, lacks_state, with_state
from kbroker.cluster.zookeeper.session import Set, ZooKeeperError
from kbroker.cluster.zookeeper.znodes import StateZnode, encode_state
from kbroker.errors import ErrorCode, InvalidUpdateVersionError
from kbroker.metadata.image import NO_LEADER
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from kbroker.waiting import set_within

if TYPE_CHECKING:
    from kbroker.cluster.controller_stats import ControllerStats
    from kbroker.cluster.zookeeper.channels import BrokerChannels
    from kbroker.cluster.zookeeper.messages import Messages
    from kbroker.cluster.zookeeper.reader import ZnodeReader
    from kbroker.cluster.zookeeper.writer import FencedWriter
    from kbroker.metadata.image import PartitionImage

logger = logging.getLogger("kbroker.cluster")

OWN_METADATA_SECONDS = 5.0


class StateChanges:
    """`failed_replicas(node_id, names)` is called when a broker has lost the log directory of replicas."""

    def __init__(
        self,
        context: ControllerContext,
        writer: FencedWriter,
        reader: ZnodeReader,
        messages: Messages,
        channels: BrokerChannels,
        failed_replicas: Callable[[int, list[TopicPartition]], None],
        stats: ControllerStats,
    ) -> None:
        self.context = context
        self.writer = writer
        self.reader = reader
        self._messages = messages
        self._channels = channels
        self._failed_replicas = failed_replicas
        self._stats = stats

    # Writing

    async def commit(
        self,
        changed: Mapping[TopicPartition, PartitionImage],
        *,
        is_isr_only: bool = False,
        resumes: bool = False,
    ) -> dict[TopicPartition, InvalidUpdateVersionError]:
        """Write partitions that were decided on the context as it is, then tell brokers.

        `is_isr_only`: as a leader asked, so only metadata is sent.  `resumes`: brokers may not have heard yet of
        replicas that are being added.  Returns those that were not written.
        """
        context = self.context
        before = {name: context.partition(name) for name in changed}
        changed = {name: new for name, new in changed.items() if (old := before[name]) is not None and new is not old}
        if not changed:
            return {}
        fresh = [name for name, new in changed.items() if lacks_state(before[name]) and not lacks_state(new)]  # type: ignore[arg-type]
        await self._make_parents(fresh)
        failed = await self._write_states(changed, before, frozenset(fresh), is_isr_only)
        # Of a partition that was not written nothing changes but what others have written.
        held = {name: new for name in changed if (new := context.partition(name)) is not None}
        moved = {name: new for name, new in held.items() if _assignment(new) != _assignment(before[name])}
        begun = {name: new for name, new in moved.items() if is_reassigning(new)}
        rest = {name: new for name, new in held.items() if name not in begun}
        self._send(rest, before, fresh, is_isr_only=is_isr_only, resumes=resumes)
        topics = {name.topic for name in moved}
        await asyncio.gather(*(self.writer.set_topic(context.image.topics[each]) for each in sorted(topics)))
        self._send(begun, before, fresh, is_isr_only=is_isr_only, resumes=resumes)
        return failed

    async def _make_parents(self, fresh: Iterable[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for name in fresh:
            by_topic.setdefault(name.topic, []).append(name.partition)
        if by_topic:
            await self.writer.make_parents(by_topic.items())

    async def _write_states(
        self,
        changed: Mapping[TopicPartition, PartitionImage],
        before: Mapping[TopicPartition, PartitionImage | None],
        fresh: Collection[TopicPartition],
        is_isr_only: bool,
    ) -> dict[TopicPartition, InvalidUpdateVersionError]:
        context = self.context
        recovering = {name: self._is_recovering(name, before[name], new, is_isr_only) for name, new in changed.items()}
        results = await self.writer.write_states(
            {
                name: (new, recovering[name], name in fresh)
                for name, new in changed.items()
                if not lacks_state(new) and _differs(before[name], new)
            }
        )
        written: dict[TopicPartition, PartitionImage] = {
            name: new for name, new in changed.items() if name not in results
        }
        lost = [name for name, result in results.items() if isinstance(result, ZooKeeperError)]
        for name, result in results.items():
            if isinstance(result, ZooKeeperError):
                continue
            written[name] = replace(changed[name], partition_epoch=result)
            self._count_election(before[name], changed[name])
            context.state_epochs[name] = context.fence.epoch
            (context.recovering.add if recovering[name] else context.recovering.discard)(name)
        if lost:
            found = await self.reader.states(lost)
            if found:
                logger.warning("%d states were changed by others, and were read again", len(found))
            for name in lost:
                if name in found:
                    state, version = found[name]
                    written[name] = with_state(before[name] or changed[name], state, version)
                    context.state_epochs[name] = state.controller_epoch
        context.put_partitions(written)
        return {name: InvalidUpdateVersionError() for name in lost}

    def has_sense(self, name: TopicPartition) -> bool:
        """Whether the state of a partition could be decoded; one that could not is tried again later."""
        return paths.state(name.topic, name.partition) not in self.reader.nonsense

    async def mend(self, names: Iterable[TopicPartition]) -> None:
        """Write states over those that cannot be decoded: what is known, or else none has a leader, for an unclean
        election to follow.

        Each change of a state raised its znode's version by one, so no leader epoch is above that version."""
        mended: dict[TopicPartition, PartitionImage] = {}
        for name in [each for each in names if not self.has_sense(each)]:
            path, each = paths.state(name.topic, name.partition), self.context.partition(name)
            found = (await self.reader.states([name])).get(name)
            version = await self.reader.version(path)
            if found is None and version is not None and each is not None:
                leader, epoch, isr = each.leader, each.leader_epoch, each.isr
                if lacks_state(each):
                    leader, epoch, isr = NO_LEADER, version + 1, ()
                state = StateZnode(leader, epoch, isr, self.context.fence.epoch, name in self.context.recovering)
                logger.warning("%s makes no sense, and is written anew with leader epoch %d", path, epoch)
                stat = await self.writer.write(Set(path, encode_state(state), version))
                assert stat is not None
                found = state, stat.version
                self.reader.nonsense.pop(path, None)
            if found is not None and each is not None:
                mended[name] = with_state(each, *found)
                self.context.state_epochs[name] = found[0].controller_epoch
        self.context.put_partitions(mended)

    def _count_election(self, old: PartitionImage | None, new: PartitionImage) -> None:
        if old is not None and new.leader >= 0 and new.leader != old.leader:
            self._stats.leader_elections += 1
            self._stats.unclean_elections += transitions.is_unclean(old, new)

    def _is_recovering(
        self, name: TopicPartition, old: PartitionImage | None, new: PartitionImage, is_isr_only: bool
    ) -> bool:
        if old is not None and transitions.is_unclean(old, new):
            return True
        return name in self.context.recovering and not (is_isr_only and old is not None and old.isr != new.isr)

    # Telling brokers

    def _send(
        self,
        changed: Mapping[TopicPartition, PartitionImage],
        before: Mapping[TopicPartition, PartitionImage | None],
        fresh: Collection[TopicPartition],
        *,
        is_isr_only: bool,
        resumes: bool,
    ) -> None:
        if not changed:
            return
        names = list(changed)
        if not is_isr_only:
            new_replicas: dict[TopicPartition, Collection[int]] = {}
            gone: dict[int, list[TopicPartition]] = {}
            for name, new in changed.items():
                old = before[name]
                assert old is not None
                known = () if name in fresh else old.replicas
                added = [each for each in new.adding_replicas if resumes and each not in new.isr]
                new_replicas[name] = [each for each in new.replicas if each not in known or each in added]
                for node_id in old.replicas:
                    if node_id not in new.replicas:
                        gone.setdefault(node_id, []).append(name)
            self.send_states(names, new_replicas)
            for node_id, stopped in gone.items():
                self.stop(node_id, stopped, delete=False)
                self.stop(node_id, stopped, delete=True)
        self.send_metadata(names)

    def send_states(
        self,
        names: Iterable[TopicPartition],
        new_replicas: Mapping[TopicPartition, Collection[int]] | None = None,
        only: int | None = None,
    ) -> None:
        """LeaderAndIsr to the brokers of replicas, or to one."""
        for node_id, (request, version) in self._messages.leader_and_isr(names, new_replicas).items():
            if only is None or node_id == only:
                self._channels.send(node_id, request, version, self._answered(node_id))

    def send_metadata(self, names: Iterable[TopicPartition], to: Iterable[int] | None = None) -> None:
        """UpdateMetadata to all brokers, or to those."""
        for node_id, (request, version) in self._messages.update_metadata(names, to).items():
            self._channels.send(node_id, request, version)

    async def wait_for_own_metadata(self) -> None:
        """Wait until this broker has applied the requests of its own controller, for OWN_METADATA_SECONDS at most."""
        own = self.context.node_id
        taken = asyncio.Event()
        for node_id, (request, version) in self._messages.update_metadata((), [own]).items():
            self._channels.send(node_id, request, version, lambda _answer: taken.set())
            if not await set_within(taken, OWN_METADATA_SECONDS):
                logger.warning("broker %d does not take what its own controller sends", own)

    def stop(
        self,
        node_id: int,
        names: list[TopicPartition],
        delete: bool,
        answered: Callable[[wire.StopReplicaResponse], None] | None = None,
    ) -> None:
        """StopReplica to one broker."""
        for request, version in self._messages.stop_replica(node_id, names, delete):
            self._channels.send(node_id, request, version, answered)

    def _answered(self, node_id: int) -> Callable[[wire.LeaderAndIsrResponse], None]:
        def take(answer: wire.LeaderAndIsrResponse) -> None:
            failed = [name for name, code in self._errors(answer) if code == ErrorCode.KAFKA_STORAGE_ERROR]
            if failed:
                self._failed_replicas(node_id, failed)

        return take

    def _errors(self, answer: wire.LeaderAndIsrResponse) -> Iterable[tuple[TopicPartition, int]]:
        for row in answer.partition_errors or ():
            yield TopicPartition(row.topic_name, row.partition_index), row.error_code
        for of_topic in answer.topics or ():
            topic = self.context.image.topics_by_id.get(of_topic.topic_id)
            if topic is not None:
                for row in of_topic.partition_errors:
                    yield TopicPartition(topic.name, row.partition_index), row.error_code


def _assignment(partition: PartitionImage | None) -> tuple[tuple[int, ...], ...]:
    if partition is None:
        return ()
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _differs(old: PartitionImage | None, new: PartitionImage) -> bool:
    """Whether a partition's state, beyond its assignment, changes."""
    return old is None or (old.leader, old.leader_epoch, old.isr, old.partition_epoch) != (
        new.leader,
        new.leader_epoch,
        new.isr,
        new.partition_epoch,
    )
