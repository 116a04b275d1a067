"""Who talks to the brokers of a history: producers, fetchers, and those who only ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbroker.schemas import wire
from tests.simulation.broken_tls_clients import draw_unkeyed
from tests.simulation.bulk import Bulk
from tests.simulation.client import Client
from tests.simulation.crowds import flood
from tests.simulation.expiring_sessions import Guest
from tests.simulation.false_followers import draw_false_followers
from tests.simulation.fetchers import Fetcher
from tests.simulation.groups.committers import Committer
from tests.simulation.groups.drawing import draw_members
from tests.simulation.log_life import draw_lives
from tests.simulation.malformed_clients import Rude
from tests.simulation.movers import draw_movers
from tests.simulation.producers import Producer
from tests.simulation.session_keeper import draw_keeper
from tests.simulation.short_retention import draw_hurried
from tests.simulation.stale_clients import Doubter
from tests.simulation.transactions.time_seekers import draw_time_seekers
from tests.simulation.transactions.transactors import Transactor
from tests.simulation.unauthenticated_clients import Stranger

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

COMMITTING = 0.3
"""The share of histories in which groups commit offsets."""
TRANSACTING = (0.0, 0.0, 0.0, 0.1, 0.3)
"""The chance that a producer has transactions, in the histories of which one is drawn."""
DOUBTING = 0.25
"""The share in which one is not up to date."""
BULKS = 4
"""So many requests for much at once has a history whose work is measured, and half as many one in some others."""
MUCH_AT_ONCE = 0.12
"""The share of those."""
RUDE = 0.12
"""The share of histories in which a client sends what is no request."""
FLOODED = 0.5
"""The share of histories whose work is measured in which much comes, and is asked for, at the same moment."""
STRANGE = 24
"""So many requests has a client without rights."""
VISITS = 6
"""So often a client logs in whose session ends, or whose right goes."""
METADATA_VERSIONS = (0, 1, 4, 5, 8, 9, 10, 12, 13)


class Asker(Client):
    """Asks what does not change anything, pipelined with a few other requests."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests
        self.depth = self.rng.choice((1, 4, 10))

    async def run(self) -> None:
        while self.requests > 0:
            connection = await self.connect(self.rng.choice(self.world.nodes))
            if connection is None:
                await self.try_later()
                continue
            while not connection.gone and not connection.end.closed and (self.requests > 0 or connection.outstanding):
                while self.requests > 0 and len(connection.outstanding) < self.depth:
                    self.requests -= 1
                    self._ask(connection)
                connection.flush()
                if self.requests <= 0:
                    self.sends_last(connection)
                if self.rng.random() < self.world.scale.aborts:
                    connection.abort()
                await self.pause()
                if connection.outstanding:
                    await connection.change()
            if not connection.gone:
                connection.finish(self.rng)

    def _ask(self, connection: ModelConnection) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5:
            self._ask_for_metadata(connection)
        elif kind < 0.7:
            connection.ask(
                wire.ApiVersionsRequest(client_software_name="sim", client_software_version="1"),
                rng.choice((0, 1, 2, 3)),
                lambda answer: self._expect(answer is None or answer.error_code == 0, answer),
            )
        elif kind < 0.9:
            self._ask_for_offsets(connection)
        else:
            self._ask_for_producers(connection)

    def _ask_for_metadata(self, connection: ModelConnection) -> None:
        version = self.rng.choice(METADATA_VERSIONS)
        names = self.rng.sample(list(self.world.topics), self.rng.randint(1, len(self.world.topics)))
        topics = [wire.MetadataRequest.MetadataRequestTopic(name=name) for name in names]

        def judge(answer: Any) -> None:
            if answer is not None:
                told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
                expected = {name: (0, self.world.topics[name].partitions) for name in names}
                self._expect(told == expected or self.world.scale.nodes > 1, told)

        connection.ask(wire.MetadataRequest(topics=topics), version, judge)

    def _ask_for_offsets(self, connection: ModelConnection) -> None:
        request = wire.ListOffsetsRequest
        topic = self.rng.choice(list(self.world.topics.values()))
        partition = (topic.name, self.rng.randrange(topic.partitions))
        floor = self.judge.ledger(partition).committed_end
        row = request.ListOffsetsPartition(partition_index=partition[1], timestamp=-1)
        sent_at = self.world.loop.time()

        def judge(answer: Any) -> None:
            if answer is not None:
                found = answer.topics[0].partitions[0]
                if found.error_code != 0:
                    excused = self.world.witness.excuses(found.error_code, partition, connection.node, sent_at)
                    self._expect(excused and self.world.tolerates(found.error_code, partition), found)
                else:
                    self._expect(found.offset >= floor or self.world.scale.nodes > 1, (found.offset, floor))

        connection.ask(
            request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic.name, partitions=[row])]),
            self.rng.choice((1, 2, 4, 5, 6, 7)),
            judge,
        )

    def _ask_for_producers(self, connection: ModelConnection) -> None:
        request = wire.DescribeProducersRequest
        topic = self.rng.choice(list(self.world.topics.values()))
        partition = (topic.name, self.rng.randrange(topic.partitions))
        sent_at = self.world.loop.time()

        def judge(answer: Any) -> None:
            if answer is not None:
                found = answer.topics[0].partitions[0]
                self.judge_producers(found, partition, connection.node, sent_at)

        row = request.TopicRequest(name=topic.name, partition_indexes=[partition[1]])
        connection.ask(request(topics=[row]), 0, judge)

    def judge_producers(self, found: Any, partition: Partition, node: int, sent_at: float) -> None:
        """Each producer of a partition is there once, was given its id, and has written by now."""
        world = self.world
        if found.error_code != 0:
            excused = world.witness.excuses(found.error_code, partition, node, sent_at)
            self._expect(excused and world.tolerates(found.error_code, partition), found)
        named = [each.producer_id for each in found.active_producers]
        self._expect(len(set(named)) == len(named), found)
        for each in found.active_producers:
            is_there = each.producer_id in world.producer_ids and each.last_timestamp <= world.now_ms()
            begins_in_order = each.current_txn_start_offset >= -1 and each.last_sequence >= -1
            self._expect(is_there and begins_in_order and each.producer_epoch >= 0, each)

    def _expect(self, holds: bool, answer: object) -> None:
        if not holds:
            self.judge.fail(f"{self.name}: {answer}")


def draw_clients(world: World, requests: int, count: int) -> Sequence[Client]:
    """So many clients that share so many requests."""
    rng = world.rng
    transacting = rng.choice(TRANSACTING)
    can_transact = not (world.is_crowd or world.scale.is_focused) and not all(
        each.is_old for each in world.topics.values()
    )
    shares = [rng.uniform(0.3, 1.0) for _ in range(count)]
    each = [max(1, int(requests * share / sum(shares))) for share in shares]
    made: list[Client] = []
    for number, budget in enumerate(each):
        kind = rng.choices((Producer, Fetcher, Asker), (6, 3, 1))[0]
        if number == 0:
            kind = Producer
        elif kind is Producer and can_transact and rng.random() < transacting:
            kind = Transactor
        made.append(kind(world, f"{kind.__name__.lower()}-{number}", max(1, int(budget * world.scale.share))))
    if rng.random() < COMMITTING:
        made.extend(
            Committer(world, f"committer-{number}", rng.choice((5, 20, 50))) for number in range(rng.randint(1, 3))
        )
    made.extend(draw_members(world))
    made.extend(world.administration.clients())
    if rng.random() < DOUBTING:
        made.append(Doubter(world, "doubter", 12))
    if world.is_secured:
        made.append(Stranger(world, "stranger", STRANGE))
        made.append(Guest(world, "guest", VISITS))
    made.extend(draw_lives(world))
    if world.is_measured or rng.random() < MUCH_AT_ONCE:
        made.append(Bulk(world, "bulk", BULKS if world.is_measured else BULKS // 2))
    may_flood = world.is_measured and world.network.weather.is_wide
    if may_flood and rng.random() < FLOODED:
        made.extend(flood(world))
    if rng.random() < RUDE:
        made.append(Rude(world, "rude", rng.choice((3, 8))))
    made.extend(draw_movers(world))
    made.extend(draw_unkeyed(world))
    made.extend(draw_time_seekers(world, has_transactions=any(isinstance(each, Transactor) for each in made)))
    made.extend(draw_false_followers(world))
    made.extend(draw_hurried(world))
    draw_keeper(world)
    made.extend(world.own_clients())
    only = world.scale.only
    return [client for number, client in enumerate(made) if only is None or number in only]
