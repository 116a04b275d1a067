"""Fetchers on topics that change: by name or by topic id, with and without sessions, waiting or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.client import FIRST_FETCH_BY_ID, ChangingClient, Place
from tests.simulation.administration.lives import FOREVER, fitting
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.fetch_loop import FetchLoop
from tests.simulation.records import MalformedBatchError, read_batches

if TYPE_CHECKING:
    from tests.simulation.administration.lives import ChangingTopic, Life
    from tests.simulation.connection import ModelConnection
    from tests.simulation.records import ReadBatch
    from tests.simulation.world import World

FETCH_VERSIONS = (4, 7, 11, 12, 13, 13, 16, 17)
FIRST_WITH_SESSIONS = 7
NO_SESSION = (0, -1)


class ChangingFetcher(ChangingClient, FetchLoop):
    """Reads topics from their beginning, each time that it learns of a new one."""

    def __init__(self, world: World, name: str, requests: int, topics: list[ChangingTopic]) -> None:
        super().__init__(world, name, requests, topics)
        rng = self.rng
        self.version = rng.choice(FETCH_VERSIONS)
        self.by_name = self.version < FIRST_FETCH_BY_ID
        self.sessions = self.version >= FIRST_WITH_SESSIONS and rng.random() < 0.5
        self.depth = 1 if self.sessions else rng.choice((1, 1, 2))
        self.max_wait_ms = rng.choice((0, 5, 500, 60_000, 60_000))
        self.partition_max_bytes = rng.choice((200, 2000, 1 << 20))
        self._here: list[Place] = []
        self._offsets: dict[Place, int] = {}
        self._since: dict[Place, float] = {}
        """When the reader had its offset for certain from the life that it reads."""
        self._session = NO_SESSION
        self._told: dict[Place, int] = {}

    async def run(self) -> None:
        world = self.world
        while self.requests > 0 and not world.writers_done:
            self.learn()
            node, connection = await self.reach()
            self._here = [] if connection is None else self.partitions(node)
            if connection is None or not self._here:
                if connection is not None:
                    connection.abort()
                self.requests -= 1
                await self.try_later()
                continue
            self._session = (0, 0) if self.sessions else NO_SESSION
            self._told = {}
            await self._talk(connection)

    def _fetch(self, connection: ModelConnection) -> None:
        request, world = wire.FetchRequest, self.world
        now = world.loop.time()
        session_id, epoch = self._session
        for place in self._here:
            self._since.setdefault(place, now)
        asked = {place: self._offsets.get(place, 0) for place in self._here}
        changed = [place for place, at in asked.items() if epoch <= 0 or self._told.get(place) != at]
        self._told = asked
        by_topic: dict[Life, list[Any]] = {}
        for life, number in changed:
            by_topic.setdefault(life, []).append(
                request.FetchPartition(
                    partition=number,
                    fetch_offset=asked[life, number],
                    partition_max_bytes=self.partition_max_bytes,
                )
            )
        topics = [
            request.FetchTopic(topic=life.name, topic_id=life.topic_id, partitions=rows)
            for life, rows in by_topic.items()
        ]
        floors = {place: self._committed(place) for place in asked}
        connection.ask(
            request(
                max_wait_ms=self.max_wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
            ),
            self.version,
            lambda answer: self._answered(connection, asked, floors, now, answer),
            allowed_seconds=PATIENCE_SECONDS + self.max_wait_ms / 1000,
            late=lambda: self._is_due(asked, now),
        )

    def _committed(self, place: Place) -> int:
        life, number = place
        return self.judge.ledger((life.key, number)).committed_end

    def _is_due(self, asked: dict[Place, int], sent_at: float) -> bool:
        """Whether there is something to tell, whatever it has met: records, or that none of its topics is there.  One
        that is not there is not worth an answer by itself, as in Kafka: consumers would ask in a loop."""
        now = self.world.loop.time()
        are_gone = True
        for (life, number), offset in asked.items():
            met = self.topic(life.name).between(sent_at, now) if self.by_name else [life]
            there = [each for each in met if each.ended_at == FOREVER]
            are_gone = are_gone and not there
            # One that is on its way out may be gone by now (`tests/compat/test_fetches_of_deleted_topics.py`).
            stays = any(each.deletion_asked_at == FOREVER for each in there)
            if stays and all(self._committed((each, number)) > offset for each in met):
                return True
        return are_gone

    def _answered(
        self,
        connection: ModelConnection,
        asked: dict[Place, int],
        floors: dict[Place, int],
        sent_at: float,
        answer: Any,
    ) -> None:
        if answer is None:
            return
        world, judge = self.world, self.judge
        if answer.error_code != 0:
            if world.fetch_sessions.excuses(answer.error_code, connection.node, self._session[0]):
                self._session = (0, 0)  # The next fetch begins another one, with all that it asks for.
                return
            if not world.tolerates(answer.error_code):
                judge.fail(f"{connection.name}: the fetch answers {ErrorCode(answer.error_code).name}")
            connection.abort()
            return
        session_id, epoch = self._session
        if epoch >= 0:
            if epoch > 0 and answer.session_id != session_id:
                judge.fail(f"{connection.name}: session {session_id} answers as {answer.session_id}")
            self._session = (answer.session_id, epoch + 1) if answer.session_id else (0, 0)
        places = {(life.name if self.by_name else life.topic_id, number): (life, number) for life, number in asked}
        told = False
        for topic in answer.responses:
            for row in topic.partitions:
                place = places.get((topic.topic if self.by_name else bytes(topic.topic_id), row.partition_index))
                if place is None:
                    judge.fail(f"{connection.name}: {topic.topic}-{row.partition_index} was not asked for")
                told |= bool(row.records) or row.error_code != 0
                if row.error_code != 0:
                    self._refused(connection, place, sent_at, row.error_code)
                else:
                    self._read(connection, place, asked[place], floors[place], sent_at, row)
        if not told:
            self._judge_empty(connection, asked, floors, sent_at)

    def _refused(self, connection: ModelConnection, place: Place, sent_at: float, code: int) -> None:
        life, number = place
        now = self.world.loop.time()
        by_name = self.by_name
        is_another = by_name and self.topic(life.name).between(self._since.get(place, sent_at), now) != [life]
        out_of_range = code == ErrorCode.OFFSET_OUT_OF_RANGE and (is_another or self.world.may_lose_leaders)
        if not out_of_range and not self.tolerates(code, place, sent_at, now, by_name=by_name):
            self.judge.fail(f"{connection.name}: {life.key}-{number} answers {ErrorCode(code).name} {self.story(life)}")
        self._offsets.pop(place, None)
        self._since.pop(place, None)
        self.world.forget_leader((life.name, number))
        connection.abort()

    def _read(
        self, connection: ModelConnection, place: Place, offset: int, floor: int, sent_at: float, row: Any
    ) -> None:
        life, number = place
        judge, now = self.judge, self.world.loop.time()
        try:
            batches: list[ReadBatch] = list(read_batches(row.records))
        except MalformedBatchError as error:
            judge.fail(f"{connection.name}: {life.key}-{number} from {offset}: {error}")
        met = self.topic(life.name).between(sent_at, now) if self.by_name else [life]
        if (
            not self.by_name
            and life.ended_at + self.world.scale.forgets_late < sent_at
            and not self.world.may_lose_leaders
        ):
            judge.fail(f"{connection.name}: {life.key}-{number} is still read, {self.story(life)}")
        if len(met) > 1:
            met = fitting(judge, met, number, batches)
        if not met:
            judge.fail(
                f"{connection.name}: {life.key}-{number} from {offset} has {batches!r:.200}, which belongs to none of "
                f"the topics of that time: {self.story(life)}"
            )
        position = batches[-1].last_offset + 1 if batches else offset
        if len(met) == 1:
            is_same = met[0] is life
            if is_same and row.high_watermark < floor and self.world.scale.nodes == 1:
                judge.fail(
                    f"{connection.name}: the high watermark of {life.key}-{number} is {row.high_watermark}, "
                    f"where {floor} was committed"
                )
            position = judge.fetched(connection.name, (met[0].key, number), batches, offset, row.high_watermark)
        self._offsets[place] = max(self._offsets.get(place, 0), position)

    def _judge_empty(
        self, connection: ModelConnection, asked: dict[Place, int], floors: dict[Place, int], sent_at: float
    ) -> None:
        now = self.world.loop.time()
        changed = any(
            len(self.topic(life.name).between(self._since.get((life, number), sent_at), now)) > 1
            or life.deletion_asked_at <= now
            for life, number in asked
        )
        behind = {place: end for place, end in floors.items() if end > asked[place]}
        if behind and not (self.world.may_lose_leaders or changed):
            self.judge.fail(
                f"{connection.name}: nothing from {asked}, where {behind} was committed before it was asked"
            )
        stops = connection.broker_stops or connection.node in self.world.disks.halting
        if now - sent_at < self.max_wait_ms / 1000 - 0.001 and not stops:
            self.judge.fail(f"{connection.name}: an empty answer after {now - sent_at:.6f} s of {self.max_wait_ms} ms")
