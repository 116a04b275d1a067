"""One term of an elected controller: from its election to the moment another broker may be the controller.

It reads everything, tells brokers what it found, and then follows what changes in ZooKeeper: brokers, topics,
deletions, and what old tools and brokers leave there.  One change is under way at a time, whether it comes from
ZooKeeper, from a request or from the clock; what brokers are sent follows from what was written.

    states      TAKING_OVER → ACTIVE → ENDED
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from kbroker.cluster.controller_stats import ControllerStats
from kbroker.cluster.placement import to_balance
from kbroker.cluster.reassignments import target_replicas
from kbroker.cluster.requests import ElectionType
from kbroker.cluster.zookeeper import paths, transitions
from kbroker.cluster.zookeeper.changes import StateChanges
from kbroker.cluster.zookeeper.context import ControllerContext, first_image, of_topics, topic_image, without_state
from kbroker.cluster.zookeeper.messages import Messages
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import ConnectionLossError, Set, ZooKeeper, ZooKeeperError
from kbroker.cluster.zookeeper.topic_deletion import TopicDeletion
from kbroker.cluster.zookeeper.work import Work, WorkLeft
from kbroker.cluster.zookeeper.writer import ControllerMovedError, FencedWriter
from kbroker.cluster.zookeeper.znodes import (
    TopicZnode,
    encode_feature,
    encode_topic,
)
from kbroker.cluster.zookeeper.zookeeper_requests import ZooKeeperRequests
from kbroker.errors import KafkaError
from kbroker.metadata.image import PartitionImage
from kbroker.outage import Outages
from kbroker.types import TopicPartition, random_uuid

if TYPE_CHECKING:
    from kbroker.cluster.protocol_version import ProtocolVersion
    from kbroker.cluster.zookeeper.channels import BrokerChannels
    from kbroker.cluster.zookeeper.election import Fence
    from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.cluster")


FIRST_BALANCE_SECONDS = 5.0
RETRY_SECONDS = 1.0


class TermState(Enum):
    """What a term may do."""

    TAKING_OVER = auto()
    ACTIVE = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class TermServices:
    """What a term stands on, the same for all terms of a broker.  `config()`: the broker's settings by now."""

    zookeeper: ZooKeeper
    channels: BrokerChannels
    configs: EntityConfigs
    config: Callable[[], BrokerConfig]
    versions: ProtocolVersion
    listener: str
    stats: ControllerStats = field(default_factory=ControllerStats)


class Term:
    """`deposed()` is called when a write has found another controller."""

    def __init__(
        self,
        services: TermServices,
        node_id: int,
        cluster_id: str,
        fence: Fence,
        deposed: Callable[[], None],
    ) -> None:
        self._services = services
        self._deposed = deposed
        self._zookeeper = services.zookeeper
        self.context = ControllerContext(node_id, fence, first_image(cluster_id, node_id))
        self.reader = ZnodeReader(self._zookeeper)
        self.writer = FencedWriter(self._zookeeper, fence)
        messages = Messages(self.context, services.versions, services.listener)
        self._loop = asyncio.get_running_loop()
        self.work = WorkLeft(self._loop)
        self.changes = StateChanges(
            self.context,
            self.writer,
            self.reader,
            messages,
            services.channels,
            self.work.note_failed,
            services.stats,
        )
        self.deletion = TopicDeletion(self.changes, partial(self.work.mark, Work.FINISHED_DELETIONS))
        self.changing = asyncio.Lock()
        self.state = TermState.TAKING_OVER
        self.has_begun = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._outages = Outages(logger, logging.ERROR, self._loop.time)
        services.stats.begin(partial(_partitions, self.context))
        self._task: asyncio.Task[None] | None = self._loop.create_task(self._run())

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings by now."""
        return self._services.config()

    def end(self) -> None:
        """Decide and send nothing any more."""
        self.state = TermState.ENDED
        self.has_begun.set()
        if self._task is not None:
            self._task.cancel()
            self._task = None  # It keeps how it ended, and with that this.
        self._services.channels.close_all()
        self._services.stats.end()
        if self._timer is not None:
            self._timer.cancel()

    # Work

    async def _run(self) -> None:
        try:
            async with self.changing:
                began = self._loop.time()
                await self._take_over()
                self._services.stats.done("take_over", 0.0, self._loop.time() - began)
            self.state = TermState.ACTIVE
            self.has_begun.set()
            self._services.stats.state = "active"
            while True:
                await self.work.wake.wait()
                work = self.work.take()
                for each in Work:
                    if each in work:
                        async with self.changing:
                            began = self._loop.time()
                            await self._do(each)
                            self._services.stats.done(each.name.lower(), began - work[each], self._loop.time() - began)
        except ControllerMovedError:
            self._deposed()
        except ConnectionLossError:
            # The next connection begins a new term, of this broker or of another.
            logger.info("the controller has lost its connection to ZooKeeper")
        except Exception:
            logger.exception("this broker failed as the controller, and lets another be elected")
            await asyncio.sleep(RETRY_SECONDS)
            self._deposed()

    async def _do(self, work: Work) -> None:
        try:
            await self._doing()[work]()
        except (ControllerMovedError, ConnectionLossError):
            raise
        except ZooKeeperError as error:
            text = "%s can't be dealt with, and is tried again: %s"
            self._outages.failed(work, text, work.name.lower(), error)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.work.mark, work)
        else:
            self._outages.over(work, "%s is dealt with again", work.name.lower())

    def _doing(self) -> dict[Work, Callable[[], Awaitable[None]]]:
        """Made anew each time: a term that kept it would be a cycle with its methods."""
        left = ZooKeeperRequests(self, self._zookeeper)
        return {
            Work.BROKERS: self._follow_brokers,
            Work.TOPICS: self._follow_topics,
            Work.DIRECTORIES: left.directories,
            Work.ISR_CHANGES: left.isr_changes,
            Work.FAILED_REPLICAS: self._take_failed,
            Work.SETTLE: self._settle,
            Work.DELETIONS: self._follow_deletions,
            Work.FINISHED_DELETIONS: self._finish_deletions,
            Work.REASSIGNMENTS: left.reassignments,
            Work.COMPLETIONS: self.complete_reassignments,
            Work.ELECTIONS: left.elections,
            Work.BALANCE: self._balance,
        }

    # Taking over

    async def _take_over(self) -> None:
        await self._write_feature()
        await self._delete_children(paths.LOG_DIR_EVENTS)
        await self._delete_children(paths.ISR_CHANGES)
        await self._read_brokers()
        await self._read_topics(await self._zookeeper.children(paths.TOPICS, partial(self.work.mark, Work.TOPICS)))
        for node_id in self.context.live():
            self._services.channels.open(node_id)
        deletions = await self._zookeeper.children(paths.DELETE_TOPICS, partial(self.work.mark, Work.DELETIONS))
        unsettled = self._resumed() | self._unsettled()
        self.context.deleting.update(name for name in deletions if name in self.context.image.topics)
        everything = of_topics(self.context.image.topics.values())
        kept = [name for name in everything if name.topic not in self.context.deleting and name not in unsettled]
        # All at once: a broker that has just come would show clients a cluster without topics in between.
        self.changes.send_metadata(everything)
        # States that are about to change are sent once, after the change; such are those of all partitions with a
        # replica on the controller that died.
        self.changes.send_states(kept)
        self.context.deleting.clear()
        await self._commit(unsettled, resumes=True)
        await self.complete_reassignments()
        for path, work in ((paths.REASSIGN_PARTITIONS, Work.REASSIGNMENTS), (paths.PREFERRED_ELECTION, Work.ELECTIONS)):
            await self._zookeeper.exists(path, partial(self.work.mark, work))
        for work in (Work.DELETIONS, Work.DIRECTORIES, Work.ISR_CHANGES, Work.REASSIGNMENTS, Work.ELECTIONS):
            self.work.mark(work)
        self._schedule_balance(FIRST_BALANCE_SECONDS)
        logger.info(
            "controller epoch %d has taken over: %d brokers, %d topics, %d partitions",
            self.context.fence.epoch,
            len(self.context.image.brokers),
            len(self.context.image.topics),
            len(everything),
        )

    async def _write_feature(self) -> None:
        wanted = encode_feature({})
        found = await self.reader.read(paths.FEATURE, bytes_of)
        if found is None:
            await self.writer.create(paths.FEATURE, wanted)
        elif found[0] != wanted:
            await self.writer.write(Set(paths.FEATURE, wanted, found[1].version))

    async def _delete_children(self, path: str) -> None:
        for name in await self.reader.children(path):
            await self.writer.delete(f"{path}/{name}")

    async def _read_brokers(self) -> tuple[set[int], set[int], bool]:
        """(who came, or came again; who went; whether the addresses of others changed)."""
        found = await self.reader.brokers(partial(self.work.mark, Work.BROKERS), self._services.listener)
        known = self.context.image.brokers
        gone = {each for each, broker in known.items() if each not in found or found[each][1] != broker.epoch}
        came = {each for each, (_, epoch) in found.items() if each not in known or known[each].epoch != epoch}
        moved = False
        for node_id in gone:
            self.context.drop_broker(node_id)
            self._services.channels.close(node_id)
        if any(node_id in found for node_id in gone):
            # It went and came back between two looks.  It may have lost records that were not on its disk yet, so it
            # loses its leaderships and its places in ISRs, as a broker that stays away does.
            await self.settle()
        for node_id, (registration, epoch) in found.items():
            old = self.context.registrations.get(node_id)
            if old != registration:
                moved = moved or node_id not in came
                self.context.put_broker(node_id, registration, epoch)
        return came, gone, moved

    async def _read_topics(self, names: Iterable[str]) -> list[str]:
        """Put topics into the context; the names of those that are there."""
        found = await self.reader.topics(list(names), lambda name: partial(self.work.watch_topic, name))
        states = await self.reader.states(
            TopicPartition(name, index) for name, znode in found.items() for index in znode.partitions
        )
        configs = await self._services.configs.topics(found)
        for name, znode in found.items():
            topic_id = znode.topic_id or await self._give_id(name, znode)
            of_topic = {
                index: states[TopicPartition(name, index)]
                for index in znode.partitions
                if TopicPartition(name, index) in states
            }
            for index, (state, _) in of_topic.items():
                named = TopicPartition(name, index)
                self.context.state_epochs[named] = state.controller_epoch
                if state.is_recovering:
                    self.context.recovering.add(named)
            self.context.put_topic(topic_image(name, topic_id, znode, of_topic, configs.get(name, {})))
        return list(found)

    async def _give_id(self, name: str, znode: TopicZnode) -> bytes:
        """An old tool has made the topic."""
        topic_id = random_uuid()
        await self.writer.write(Set(paths.topic(name), encode_topic(replace(znode, topic_id=topic_id))))
        return topic_id

    # Following ZooKeeper

    async def _follow_brokers(self) -> None:
        came, gone, moved = await self._read_brokers()
        if not (came or gone or moved):
            return
        for node_id in came:
            self._services.channels.open(node_id)
            self.work.failed.pop(node_id, None)
        affected = came | gone
        held: dict[TopicPartition, PartitionImage] = {}
        for name, each in self.context.partitions():
            if came & set(each.offline_replicas):
                # A replica that the broker had lost may be there again: the broker's answer to the next LeaderAndIsr
                # shows whether it is.
                held[name] = replace(
                    each, offline_replicas=tuple(node for node in each.offline_replicas if node not in came)
                )
        self.context.put_partitions(held)
        logger.info("brokers %s came, %s went; %s are there", sorted(came), sorted(gone), self.context.live())
        self.changes.send_metadata((), [each for each in self.context.live() if each not in came])
        if came:
            everything = of_topics(self.context.image.topics.values())
            self.changes.send_metadata(everything, came)
            for node_id in came:
                self.changes.send_states(
                    [name for name, each in self.context.partitions() if node_id in each.replicas], only=node_id
                )
        await self.settle(also=[name for name, each in self.context.partitions() if affected & set(each.replicas)])
        await self.complete_reassignments()
        for node_id in came:
            self.deletion.resume(node_id)

    async def settle(self, also: Iterable[TopicPartition] = ()) -> None:
        """Give every partition the leader and the ISR that it can have; tell of those in `also` in any case."""
        changed = self._unsettled()
        await self._commit(changed)
        others = [name for name in also if name not in changed]
        if others:
            self.changes.send_metadata(others)

    def _unsettled(self) -> dict[TopicPartition, PartitionImage]:
        """The partitions that could have another leader or ISR, with it."""
        contexts = self.context.contexts(self.config)
        leaving = self.context.leaving()
        changed = {}
        for name, each in self.context.partitions():
            new = transitions.settled(each, contexts.of(self.context.image.topics[name.topic]), leaving)
            if new is not each:
                changed[name] = new
        return changed

    def _resumed(self) -> dict[TopicPartition, PartitionImage]:
        """The reassignments under way, each in a new leader epoch."""
        rows = ((name, each, transitions.resumed(each)) for name, each in self.context.partitions())
        return {name: new for name, each, new in rows if new is not each}

    async def _commit(self, changed: Mapping[TopicPartition, PartitionImage], *, resumes: bool = False) -> None:
        # A state that cannot be decoded would fail again at once, until it is mended; it is not tried again here.
        if any(map(self.changes.has_sense, await self.changes.commit(changed, resumes=resumes))):
            self.work.mark(Work.SETTLE)

    async def _settle(self) -> None:
        await self.settle()

    async def _follow_topics(self) -> None:
        names = await self._zookeeper.children(paths.TOPICS, partial(self.work.mark, Work.TOPICS))
        known = self.context.image.topics
        suspects = self.work.take_topics()
        gone = [name for name in known if name not in names]
        for name in gone:
            logger.warning("topic %s was removed from ZooKeeper by others", name)
            self._stop_all(name)
            self.deletion.forget(name)
            self.context.drop_topic(name)
        new = await self._read_topics([name for name in names if name not in known])
        if new:
            logger.info("new topics: %s", ", ".join(new[:20]))
        for name in suspects:
            if name in names and name in known:
                await self._reread(name)
        await self.settle()

    def _stop_all(self, name: str) -> None:
        topic = self.context.image.topics[name]
        self.context.deleting.add(name)
        self.changes.send_metadata(of_topics([topic]))
        for node_id in {node for each in topic.partitions for node in each.replicas}:
            held = [TopicPartition(name, each.partition) for each in topic.partitions if node_id in each.replicas]
            self.changes.stop(node_id, held, delete=True)

    async def _reread(self, name: str) -> None:
        """A topic's assignment was written, by this controller itself or by a tool that adds partitions."""
        topic = self.context.image.topics[name]
        found = (await self.reader.topics([name], lambda each: partial(self.work.watch_topic, each))).get(name)
        if found is None or name in self.context.deleting or found.topic_id not in (None, topic.topic_id):
            return
        added = tuple(
            without_state(index, replicas)
            for index, replicas in found.partitions.items()
            if index >= len(topic.partitions)
        )
        if added:
            self.context.put_topic(replace(topic, partitions=(*topic.partitions, *added)))

    async def _follow_deletions(self) -> None:
        names = await self._zookeeper.children(paths.DELETE_TOPICS, partial(self.work.mark, Work.DELETIONS))
        if not self.config.get("delete.topic.enable"):
            await self._delete_children(paths.DELETE_TOPICS)
            return
        for name in names:
            if name not in self.context.image.topics and await self._zookeeper.exists(paths.topic(name)) is None:
                await self.writer.delete(paths.deletion(name))
        self.deletion.begin(names)

    async def _finish_deletions(self) -> None:
        await self.deletion.run()

    async def _take_failed(self) -> None:
        for node_id, names in self.work.take_failed().items():
            lost = {}
            for name in names:
                each = self.context.partition(name)
                if each is not None and node_id in each.replicas and node_id not in each.offline_replicas:
                    lost[name] = transitions.failed_replica(each, node_id)
            if lost:
                logger.warning("broker %d has lost the directories of %d replicas", node_id, len(lost))
                self.context.put_partitions(lost)
                await self.settle(also=list(lost))
                self.changes.stop(node_id, list(lost), delete=False)

    # Moves and elections

    async def complete_reassignments(self) -> None:
        """End the reassignments whose target's replicas are all in the ISR."""
        contexts = self.context.contexts(self.config)
        changed = {}
        for name, each in self.context.partitions():
            new = transitions.completed(each, contexts.of(self.context.image.topics[name.topic]))
            if new is not each:
                changed[name] = new
        if changed:
            failed = await self.changes.commit(changed)
            if any(map(self.changes.has_sense, failed)):
                self.work.mark(Work.COMPLETIONS)
            for name in changed.keys() - failed.keys():
                logger.info("the reassignment of %s is done", name)
            if await self._zookeeper.exists(paths.REASSIGN_PARTITIONS) is not None:
                self.work.mark(Work.REASSIGNMENTS)

    async def prefer(self, names: Iterable[TopicPartition]) -> None:
        """Elect preferred leaders where they can lead."""
        contexts = self.context.contexts(self.config)
        changed: dict[TopicPartition, PartitionImage] = {}
        for name in names:
            each = self.context.partition(name)
            if each is not None:
                try:
                    topic = self.context.image.topics[name.topic]
                    changed[name] = transitions.elected(each, ElectionType.PREFERRED, contexts.of(topic))
                except KafkaError:
                    continue
        await self.changes.commit(changed)

    def _schedule_balance(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.work.mark, Work.BALANCE)

    async def _balance(self) -> None:
        """Give leaders back to brokers that should have more of them."""
        config = self.config
        self._schedule_balance(config.get("leader.imbalance.check.interval.seconds"))
        if self.reader.nonsense:
            self.work.mark(Work.SETTLE)
        if not config.get("auto.leader.rebalance.enable"):
            return
        contexts = self.context.contexts(config)
        preferred: dict[TopicPartition, tuple[int, bool, bool]] = {}
        for name, each in self.context.partitions():
            target = target_replicas(each)[0]
            could = transitions.is_imbalanced(each, contexts.of(self.context.image.topics[name.topic]))
            preferred[name] = (target, each.leader != target, could)
        rows = [(target, elsewhere) for target, elsewhere, _ in preferred.values()]
        brokers = to_balance(rows, config.get("leader.imbalance.per.broker.percentage"))
        await self.prefer([name for name, (target, _, could) in preferred.items() if could and target in brokers])

    # Settings

    def topic_configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Settings of topics are others: an unclean election may be allowed by now."""
        for name, settings in configs.items():
            topic = self.context.image.topics.get(name)
            if topic is not None and topic.configs != settings:
                self.context.put_topic(replace(topic, configs=settings))
                self.work.mark(Work.SETTLE)


def _partitions(context: ControllerContext) -> Iterator[PartitionImage]:
    return (each for _, each in context.partitions())


def bytes_of(data: bytes | None) -> bytes:
    """A znode's content as it is."""
    return data or b""
