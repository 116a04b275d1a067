"""Who asks what there is while topics change: metadata, settings, log directories, the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.client import ABSENT, ChangingClient

if TYPE_CHECKING:
    from tests.simulation.administration.lives import ChangingTopic, Life
    from tests.simulation.connection import ModelConnection

METADATA_VERSIONS = tuple(range(14))
FIRST_METADATA_WITH_IDS = 10
TOPIC = 2


class ChangingAsker(ChangingClient):
    """One question after the other, each to any broker."""

    async def run(self) -> None:
        kinds = (
            self._metadata, self._metadata, self._partitions, self._settings, self._cluster, self._log_dirs,
            self._moves,
        )  # fmt: skip
        while self.requests > 0:
            connection = await self.connect(self.rng.choice(list(self.world.nodes)))
            while connection is not None and self.requests > 0 and not connection.gone:
                self.requests -= 1
                await self.rng.choice(kinds)(connection)
                await self.pause()
            if connection is None:
                self.requests -= 1
                await self.try_later()
            elif not connection.gone:
                connection.finish(self.rng)

    async def _metadata(self, connection: ModelConnection) -> None:
        version = self.rng.choice(METADATA_VERSIONS)
        request = wire.MetadataRequest
        asked = request(topics=[request.MetadataRequestTopic(name=each.name) for each in self.topics])
        counts, since = self._counts(), self.world.loop.time()
        answer = await connection.answer(asked, version)
        for row in () if answer is None else answer.topics:
            topic_id = bytes(row.topic_id) if version >= FIRST_METADATA_WITH_IDS else None
            numbers = sorted(each.partition_index for each in row.partitions)
            self._judge_topic(connection, row.name, row.error_code, topic_id, numbers, counts, since)

    async def _partitions(self, connection: ModelConnection) -> None:
        request = wire.DescribeTopicPartitionsRequest
        asked = request(topics=[request.TopicRequest(name=each.name) for each in self.topics], cursor=None)
        if self.world.scale.nodes > 1:
            return  # Brokers of a cluster with ZooKeeper do not have it.
        counts, since = self._counts(), self.world.loop.time()
        answer = await connection.answer(asked, 0)
        for row in () if answer is None else answer.topics:
            numbers = sorted(each.partition_index for each in row.partitions)
            self._judge_topic(connection, row.name, row.error_code, bytes(row.topic_id), numbers, counts, since)

    def _counts(self) -> dict[str, tuple[Life | None, int]]:
        """How many partitions each topic has for certain, and which of its lives that is about."""
        return {each.name: (each.life, 0 if each.life is None else each.life.partitions) for each in self.topics}

    def _judge_topic(
        self,
        connection: ModelConnection,
        name: str,
        code: int,
        topic_id: bytes | None,
        numbers: list[int],
        counts: dict[str, tuple[Life | None, int]],
        since: float,
    ) -> None:
        topic, now = self.topic(name), self.world.loop.time()
        met = topic.between(since - topic.lag, now)
        if code in ABSENT:
            self._require(topic.may_be_absent(since, now), connection, f"{name} is not there", topic)
        elif code != 0:
            self._require(self.world.tolerates(code), connection, f"{name} answers {ErrorCode(code).name}", topic)
        else:
            known = [each.topic_id for each in met]
            is_of_then = topic_id is None or topic_id in known or b"" in known
            self._require(is_of_then, connection, f"{name} has the id {topic_id!r}, not one of {known}", topic)
            self._require(numbers == list(range(len(numbers))), connection, f"{name} has {numbers}", topic)
            most = max((each.most_partitions for each in met), default=0)
            life, count = counts[name]
            least = count if topic.lag == 0 and met == [life] else 1
            self._require(
                least <= len(numbers) <= most, connection, f"{name} has {numbers}, not {least} to {most}", topic
            )

    async def _settings(self, connection: ModelConnection) -> None:
        request, topic = wire.DescribeConfigsRequest, self.rng.choice(self.topics)
        resource = request.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic.name, configuration_keys=None
        )
        since = self.world.loop.time()
        answer = await connection.answer(request(resources=[resource]), self.rng.choice((1, 2, 3, 4)))
        if answer is None:
            return
        (result,) = answer.results
        now = self.world.loop.time()
        if result.error_code != 0:
            absent = result.error_code in ABSENT and topic.may_be_absent(since, now)
            self._require(absent, connection, f"settings of {topic.name}: {result.error_code}", topic)
            return
        met = topic.between(since, now)
        if topic.lag == 0 and len(met) == 1:
            said = {each.name: each.value for each in result.configs}
            for name, setting in met[0].settings.items():
                values = setting.between(since, now)
                holds = 0 in values or said[name] in map(str, values)
                self._require(holds, connection, f"{name} is {said[name]}, not one of {values}", topic)

    async def _cluster(self, connection: ModelConnection) -> None:
        answer = await connection.answer(wire.DescribeClusterRequest(), self.rng.choice((0, 1)))
        if answer is not None:
            nodes = [each.broker_id for each in answer.brokers]
            holds = answer.error_code == 0 and set(nodes) <= set(self.world.nodes) and len(nodes) == len(set(nodes))
            self._require(holds, connection, f"the cluster is {answer}", self.topics[0])

    async def _log_dirs(self, connection: ModelConnection) -> None:
        node = connection.node
        answer = await connection.answer(wire.DescribeLogDirsRequest(topics=None), self.rng.choice((1, 2, 3, 4)))
        if answer is not None and node not in self.world.crashed_at:
            folders = [each.log_dir for each in answer.results]
            self._require(set(folders) <= set(self.world.log_dirs(node)), connection, f"{folders}", self.topics[0])

    async def _moves(self, connection: ModelConnection) -> None:
        """Of the replicas that are under way: those of topics that were told to move, to where they were told."""
        request = wire.ListPartitionReassignmentsRequest
        since = self.world.loop.time()
        asked = [
            request.ListPartitionReassignmentsTopics(name=each.name, partition_indexes=list(range(4)))
            for each in self.topics
        ]
        answer = await connection.answer(request(timeout_ms=1000, topics=asked), 0)
        if answer is None:
            return
        if answer.error_code != 0:
            is_excused = self.world.scale.nodes > 1 and answer.error_code == ErrorCode.NOT_CONTROLLER
            self._require(is_excused, connection, f"what moves is {answer}", self.topics[0])
            return
        for named in answer.topics:
            topic, now = self.topic(named.name), self.world.loop.time()
            met = [each for each in topic.between(since - topic.lag, now) if each.moved_at <= now]
            for row in named.partitions:
                self._judge_move(connection, topic, met, row)

    def _judge_move(self, connection: ModelConnection, topic: ChangingTopic, met: list[Life], row: Any) -> None:
        replicas, adding, removing = map(set, (row.replicas, row.adding_replicas, row.removing_replicas))
        what = f"{topic.name} moves as {row}"
        self._require(bool(met), connection, what, topic)
        self._require(bool(adding or removing) and adding | removing <= replicas, connection, what, topic)
        self._require(not adding & removing and len(replicas) == len(row.replicas), connection, what, topic)
        self._require(replicas <= set(self.world.nodes), connection, what, topic)

    def _require(self, holds: bool, connection: ModelConnection, what: str, topic: ChangingTopic) -> None:
        if not holds:
            lives = "" if topic.life is None else self.story(topic.life)
            self.judge.fail(f"{connection.name}: {what} ({lives})")
