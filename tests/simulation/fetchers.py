"""Model fetchers: with and without sessions, waiting, several requests under way; and reading a partition whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.fetch_loop import FetchLoop
from tests.simulation.records import MalformedBatchError, ReadBatch, read_batches

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

FIRST_FETCH_WITH_SESSIONS = 7
FIRST_FETCH_OF_BATCHES = 4
FIRST_FETCH_WITH_RACK = 11
FIRST_FETCH_OF_WHOLE_MESSAGES = 3
"""Before, what a partition's answer may have is a hard limit, and a message that is longer is cut off."""
FIRST_FETCH_OF_MAGIC_1 = 2
OLD_FETCH_VERSIONS = (0, 1, 2, 3)
OLD_SHARE = 0.15
"""The share of fetchers that know the message formats before record batches alone."""
LAST_FETCH_BY_NAME = 12
FETCH_VERSIONS = (4, 6, 7, 10, 11, 12, 13, 16, 17)
READ_COMMITTED = 1


class Fetcher(FetchLoop):
    """Reads partitions from their beginning, with or without a session."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.requests = requests
        self.is_old = rng.random() < OLD_SHARE
        self.version = rng.choice(OLD_FETCH_VERSIONS if self.is_old else FETCH_VERSIONS)
        self.sessions = self.version >= FIRST_FETCH_WITH_SESSIONS and rng.random() < 0.5
        self.depth = 1 if self.sessions else rng.choice((1, 1, 2, 3))
        self.max_wait_ms = rng.choice((0, 5, 100, 500, 60_000, 60_000))
        self.min_bytes = rng.choice((1, 1, 1, 300, 5000)) if self.max_wait_ms < 1000 else 1
        self.partition_max_bytes = rng.choice((200, 2000, 1 << 20))
        self.max_bytes = rng.choice((1, 3000, 1 << 20, 1 << 20))
        self.isolation = 0 if self.is_old else rng.choice((0, 1))
        self.slow = rng.random() < 0.2
        self.rack = ""
        """Where it stands, if that is to have it read from a nearer replica (KIP-392)."""
        topics = list(world.topics.values())
        if not world.has_topic_ids:
            self.version = min(self.version, LAST_FETCH_BY_NAME)
        partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        chosen = rng.sample(partitions, rng.choice((1, 1, min(3, len(partitions)), len(partitions))))
        self.offsets: dict[Partition, int] = dict.fromkeys(sorted(chosen), 0)
        if world.racks and self.version >= FIRST_FETCH_WITH_RACK and rng.random() < 0.7:
            self.rack = rng.choice(list(world.racks.values()))
        self._here: list[Partition] = []
        self._forgotten: list[Partition] = []
        self._nearer: dict[Partition, int] = {}
        """The replicas that leaders have named."""
        self._session = (0, -1)
        self._told: dict[Partition, int] = {}

    async def run(self) -> None:
        while self.requests > 0 and not self.world.writers_done:
            first = self.rng.choice(list(self.offsets))
            node = self._nearer.get(first) or await self.world.leader(first)
            connection = await self.connect(node)
            if connection is None:
                self._nearer.clear()
                self.world.forget_leader(first)
                await self.try_later()
                continue
            self._session = (0, 0 if self.sessions else -1)
            self._told = {}
            self._here = [
                each
                for each in self.offsets
                if (self.world.leads(node, each) if each not in self._nearer else self._nearer[each] == node)
            ]
            if self._here:
                await self._talk(connection)
            else:
                connection.abort()
                await self.try_later()

    def _meanwhile(self, connection: ModelConnection) -> None:
        if self.requests <= 0:
            self.sends_last(connection)
        if self.slow and self.rng.random() < 0.2 and not connection.end.paused:
            self.read_slowly(connection)

    def _fetch(self, connection: ModelConnection) -> None:
        request = wire.FetchRequest
        world, judge = self.world, self.judge
        session_id, epoch = self._session
        self._forgotten = []
        if epoch > 0 and len(self._here) > 1 and self.rng.random() < 0.15:
            self._forgotten = [self._here.pop(self.rng.randrange(len(self._here)))]
        asked = {each: self.offsets[each] for each in self._here}
        changed = {each: at for each, at in asked.items() if epoch <= 0 or self._told.get(each) != at}
        self._told = asked
        by_topic: dict[str, list[Any]] = {}
        for (name, number), offset in changed.items():
            by_topic.setdefault(name, []).append(
                request.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=self.partition_max_bytes
                )
            )
        topics = [
            request.FetchTopic(topic=name, topic_id=world.topics[name].topic_id, partitions=rows)
            for name, rows in by_topic.items()
        ]
        floors = {each: judge.ledger(each).committed_end for each in asked}
        is_nearer = any(each in self._nearer for each in asked)
        sent_at = world.loop.time()
        connection.ask(
            request(
                max_wait_ms=self.max_wait_ms,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation_level=self.isolation,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=[
                    request.ForgottenTopic(topic=name, topic_id=world.topics[name].topic_id, partitions=[number])
                    for name, number in self._forgotten
                ],
                rack_id=self.rack,
            ),
            self.version,
            lambda answer: self._answered(connection, asked, floors, sent_at, answer),
            allowed_seconds=PATIENCE_SECONDS + self.max_wait_ms / 1000,
            # What is committed may belong to transactions that begin while it waits.
            late=lambda: (
                not (is_nearer or self._may_hide(world))
                and any(
                    judge.ledger(each).committed_end > at and not self._is_deposed(connection.node, each)
                    for each, at in asked.items()
                )
            ),
        )

    def _is_deposed(self, node: int, partition: Partition) -> bool:
        """Whether a broker takes itself for the leader while another one is: what is committed there, it has not, nor
        has Apache Kafka's (`tests/compat/test_deposed_leaders.py`)."""
        term = self.world.witness.term(node, partition)
        return term is not None and not self.world.is_in_force(term)

    def _may_hide(self, world: World) -> bool:
        """Whether there may be nothing for it in what is committed: of transactions that are under way nothing is shown
        where that is asked for, and the formats before record batches have no markers."""
        return bool(world.transactions) and (self.isolation == READ_COMMITTED or self.is_old)

    def _check_format(
        self, partition: Partition, batches: list[ReadBatch], records: Any, connection: ModelConnection
    ) -> None:
        """What an old version gets are messages that it knows, and no more bytes than it takes."""
        if not self.is_old:
            return
        judge, size = self.judge, len(records or b"")
        if any(batch.magic > (1 if self.version >= FIRST_FETCH_OF_MAGIC_1 else 0) for batch in batches):
            judge.fail(f"{connection.name}: {partition} comes in a format that Fetch v{self.version} does not know")
        if self.version >= FIRST_FETCH_OF_WHOLE_MESSAGES:
            return
        # What is converted may have more: as from Apache Kafka the first batch comes whole.
        is_stored_so = self.world.topics[partition[0]].is_old and self.version == FIRST_FETCH_OF_MAGIC_1
        if is_stored_so and size > self.partition_max_bytes:
            judge.fail(
                f"{connection.name}: {size} bytes of {partition}, where {self.partition_max_bytes} were asked for"
            )
        if size and not batches:
            self.partition_max_bytes *= 2  # As consumers do that get a part of a message.

    def _answered(
        self,
        connection: ModelConnection,
        asked: dict[Partition, int],
        floors: dict[Partition, int],
        sent_at: float,
        answer: Any,
    ) -> None:
        if answer is None:
            return
        world, judge, name = self.world, self.judge, connection.name
        if answer.error_code != 0:
            # A consumer whose session is gone begins another one, with all that it asks for.
            gave_way = world.fetch_sessions.excuses(answer.error_code, connection.node, self._session[0])
            if not (gave_way or world.tolerates(answer.error_code)):
                judge.fail(f"{name}: the fetch answers {ErrorCode(answer.error_code).name}")
            self._session = (0, 0 if self.sessions else -1)
            return
        session_id, epoch = self._session
        if epoch >= 0:
            if epoch > 0 and answer.session_id != session_id:
                judge.fail(f"{name}: session {session_id} answers as {answer.session_id}")
            self._session = (answer.session_id, epoch + 1) if answer.session_id else (0, 0)
        found = failed = False
        for topic in answer.responses:
            topic_name = topic.topic or world.topic_name(topic.topic_id)
            for row in topic.partitions:
                partition = (topic_name, row.partition_index)
                if partition not in asked:
                    judge.fail(f"{name}: {partition} was not asked for")
                if row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and self.is_old and world.has_zstd:
                    # It can go on behind what it cannot read alone, and nobody tells it where that ends.
                    failed = True
                    self.requests = 0
                    continue
                if row.error_code != 0:
                    failed = True
                    # A follower may have less than the leader.
                    is_behind = row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not world.is_led_by(
                        connection.node, partition
                    )
                    tolerated = world.tolerates(row.error_code, partition) and world.witness.excuses(
                        row.error_code, partition, connection.node, sent_at
                    )
                    if not (is_behind or tolerated):
                        judge.fail(f"{name}: {partition} answers {ErrorCode(row.error_code).name}")
                    self._nearer.pop(partition, None)
                    world.forget_leader(partition)
                    connection.abort()
                    continue
                if row.preferred_read_replica >= 0:
                    failed = True
                    self._go_nearer(connection, partition, row)
                    continue
                try:
                    batches = list(read_batches(row.records))
                except MalformedBatchError as error:
                    judge.fail(f"{name}: {partition} from {asked[partition]}: {error}")
                found |= bool(row.records)
                self._check_format(partition, batches, row.records, connection)
                if row.high_watermark < floors[partition] and world.scale.nodes == 1:
                    judge.fail(
                        f"{name}: the high watermark of {partition} is {row.high_watermark}, "
                        f"where {floors[partition]} was committed"
                    )
                is_committed = self.isolation == READ_COMMITTED
                world.transactions.fetched(name, partition, batches, row, committed=is_committed)
                position = judge.fetched(name, partition, batches, asked[partition], row.high_watermark)
                self.offsets[partition] = max(self.offsets[partition], position)
        if not found and not failed:
            behind = {each: end for each, end in floors.items() if end > asked[each]}
            # The next leader learns late what is committed.
            in_doubt = world.may_lose_leaders or self._may_hide(world) or any(each in self._nearer for each in asked)
            if behind and not in_doubt:
                judge.fail(f"{name}: nothing from {asked}, where {behind} was committed before it was asked")
            stops = connection.broker_stops or connection.node in world.disks.halting
            stops |= world.away_at.get(connection.node, 0.0) >= sent_at
            if world.loop.time() - sent_at < self.max_wait_ms / 1000 - 0.001 and not stops:
                judge.fail(
                    f"{name}: an empty answer after {world.loop.time() - sent_at:.6f} s of {self.max_wait_ms} ms"
                )

    def _go_nearer(self, connection: ModelConnection, partition: Partition, row: Any) -> None:
        """A leader sends a consumer to a replica in its rack, and gives it no records."""
        nearer = row.preferred_read_replica
        if self.world.racks.get(nearer) != self.rack or nearer == connection.node or row.records:
            self.judge.fail(f"{connection.name} of {self.rack} is sent to broker {nearer} for {partition}: {row}")
        self._nearer[partition] = nearer
        connection.abort()


async def read_all(
    connection: ModelConnection, world: World, partition: Partition
) -> tuple[dict[int, bytes], int] | None:
    """What a partition holds from its beginning to its end, and that end; None where this is not to be had now."""
    request = wire.FetchRequest
    found: dict[int, bytes] = {}
    position, end = 0, -1
    while position != end:
        row = request.FetchPartition(partition=partition[1], fetch_offset=position, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic=partition[0], partitions=[row])
        answer = await connection.answer(request(min_bytes=0, max_bytes=1 << 24, topics=[topic], session_epoch=-1), 11)
        if answer is None:
            return None
        got = answer.responses[0].partitions[0]
        if got.error_code != 0 and world.tolerates(got.error_code, partition):
            return None
        if got.error_code != 0:
            world.judge.fail(f"{partition} cannot be read: {ErrorCode(got.error_code).name}")
        end = got.high_watermark
        before = position
        for batch in read_batches(got.records):
            if batch.base_offset != position:
                world.judge.fail(f"{partition} goes on at {batch.base_offset} behind {position}")
            if not batch.is_control:
                found.update((at, value) for at, value in batch.values if value is not None)
            position = batch.last_offset + 1
        if position == before and position != end:
            world.judge.fail(f"{partition} has nothing at {position}, and ends at {end}")
    return found, end
