"""A node's replica and controller as production has them, of which the judge sees what they commit and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.assembly.quorum_node import NodeReplica, controller_of
from kbroker.cluster.kraft.quorum_steps import Committed as HighWatermark
from kbroker.cluster.raft.machine import Lead

if TYPE_CHECKING:
    from kbroker.assembly.quorum import ActiveController, Replica, ReplicaParts
    from kbroker.cluster.requests import BrokerEpoch, IsrChange, PartitionOutcome, TopicOutcome
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.store import ProducerIdBlock
    from kbroker.schemas import wire
    from tests.simulation.voters.cluster import QuorumCluster


class Watch:
    """Of one node."""

    def __init__(self, world: QuorumCluster, who: str) -> None:
        self._world = world
        self._who = who
        self.is_active: Callable[[], bool] = lambda: False
        self.replica: NodeReplica | None = None
        self.parts: ReplicaParts | None = None

    def make_replica(self, parts: ReplicaParts) -> NodeReplica:
        """The node's replica."""
        world, who, committed = self._world, self._who, self._world.committed
        made = NodeReplica(parts)
        self.parts, self.replica, replica = parts, made, made.replica
        take, apply = replica.take, replica.log.apply

        def note(high_watermark: int) -> None:
            found = []
            for each in replica.log.pending:
                if each.end_offset > high_watermark:
                    break
                found.append(each)
            committed.take(who, found)

        def taken(steps: Sequence[Any]) -> None:
            for step in steps:
                match step:
                    case HighWatermark(high_watermark):
                        note(high_watermark)
                    case Lead(epoch, _):
                        committed.leads(who, epoch)
                        world.leader_changes()
            take(steps)

        async def applied(high_watermark: int) -> Any:
            note(high_watermark)
            return await apply(high_watermark)

        replica.take, replica.log.apply = taken, applied  # type: ignore[method-assign]
        replica.on_lead(lambda leading: world.judge.note("%s is active", who), world.leader_changes)
        parts.metadata.subscribe(lambda: world.judge_image(who, parts.metadata))
        return made

    def make_controller(self, parts: ReplicaParts, replica: Replica, settings: BrokerSettings) -> ActiveController:
        """The node's controller."""
        made = controller_of(parts, replica, settings)
        self.is_active = made.is_active
        watched: Any = _Answers(self._world, self._who, made.requests)
        return made._replace(requests=watched, administration=watched, lives=watched)


class _Answers:
    """The controller, each answer of which is to be committed."""

    def __init__(self, world: QuorumCluster, who: str, controller: Any) -> None:
        self._committed = world.committed
        self._who = who
        self._controller = controller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    async def register_broker(self, request: wire.BrokerRegistrationRequest) -> wire.BrokerRegistrationResponse:
        answer: wire.BrokerRegistrationResponse = await self._controller.register_broker(request)
        if answer.error_code == 0:
            self._committed.registered(self._who, request.broker_id, answer.broker_epoch)
        return answer

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        block: ProducerIdBlock = await self._controller.allocate_producer_ids(broker)
        self._committed.gave_producer_ids(self._who, block.first_id + block.length)
        return block

    async def create_topics(self, requests: Any, validate_only: bool = False, quota: Any = None) -> list[TopicOutcome]:
        outcomes: list[TopicOutcome] = await self._controller.create_topics(requests, validate_only, quota)
        for each in () if validate_only else outcomes:
            if each.topic is not None and each.error is None:
                self._committed.made(self._who, each.topic.topic_id)
        return outcomes

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: Any = None) -> list[TopicOutcome]:
        outcomes: list[TopicOutcome] = await self._controller.delete_topics(topic_ids, quota)
        for topic_id, each in zip(topic_ids, outcomes, strict=True):
            if each.error is None:
                self._committed.deleted(self._who, topic_id)
        return outcomes

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        outcomes: list[PartitionOutcome] = await self._controller.alter_partitions(broker, changes)
        for each in outcomes:
            if each.image is not None and each.error is None:
                self._committed.changed(self._who, each.partition.topic, each.image)
        return outcomes


__all__ = ["Watch"]
