"""Model clients that are not up to date: fetch sessions out of step, and leader epochs that are over or yet to come.

The judge looks into the broker for what it knew when the request was sent and when the answer came: an epoch that was
over before is fenced, one that has yet to come is not known, and neither is served (KIP-320); each epoch of a session
is answered once and in order, and one that was ended is over (KIP-227).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.simulation.client import Client
from tests.simulation.records import read_batches

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

SESSION_VERSIONS = (7, 10, 11, 12)
FETCH_VERSIONS = (9, 11, 12)
"""Those that name a leader epoch, and topics by their names."""
FETCH_BY_ID = 13
LIST_VERSIONS, END_VERSIONS = (4, 5, 6), (2, 3, 4)
FETCH_WITH_LAST_EPOCH = 12
MAX_EPOCH = 2**31 - 1
NO_ISOLATION = 2
LATEST = -1
NO_SESSION = frozenset({ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_ID_NOT_FOUND})


def fetch_of(partition: Partition, offset: int, *, epoch: int = -1, session: tuple[int, int] = (0, -1)) -> Any:
    request = wire.FetchRequest
    row = request.FetchPartition(
        partition=partition[1], current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=2000
    )
    topics = [request.FetchTopic(topic=partition[0], partitions=[row])]
    session_id, session_epoch = session
    return request(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session_id, session_epoch=session_epoch, topics=topics
    )


class Doubter(Client):
    """One request at a time; a part of them names what is not so."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests
        topic = self.rng.choice(list(world.topics.values()))
        self.partition = (topic.name, 0)
        self._offset = 0

    async def run(self) -> None:
        while self.requests > 0 and not self.world.writers_done:
            connection = await self.connect(await self.world.leader(self.partition))
            if connection is None:
                self.world.forget_leader(self.partition)
                await self.try_later()
                continue
            kind = self.rng.random()
            if kind < 0.4:
                await self._follow_session(connection)
            elif kind < 0.9:
                await self._name_epochs(connection)
            else:
                await self._ask_for_what_is_not(connection)
            if not connection.gone:
                connection.finish(self.rng)
            await self.try_later()

    # Sessions

    async def _follow_session(self, connection: ModelConnection) -> None:
        rng, version = self.rng, self.rng.choice(SESSION_VERSIONS)
        session_id = epoch = 0
        for _ in range(rng.randint(2, 6)):
            named = epoch
            if session_id and rng.random() < 0.3:
                # The one that was answered, or one too far.
                named = rng.choice([each for each in (epoch - 1, epoch + 1, MAX_EPOCH) if each > 0])
            self.requests -= 1
            request = fetch_of(self.partition, self._offset, session=(session_id, named))
            answer = await connection.answer(request, version)
            if answer is None:
                return
            if answer.error_code in NO_SESSION and session_id:
                if named == epoch and answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                    self.judge.fail(f"{connection.name}: the session's next epoch {epoch} is refused")
                if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                    self._requires(self._gave_way(connection, session_id), connection, f"session {session_id} is lost")
                session_id = epoch = 0
                continue
            if named != epoch:
                self.judge.fail(f"{connection.name}: epoch {named} of a session is served, where {epoch} is the next")
            if answer.error_code != 0:
                self.judge.fail(f"{connection.name}: the fetch answers {ErrorCode(answer.error_code).name}")
            if self._reads(connection, answer):
                return
            session_id, epoch = answer.session_id, epoch + 1 if answer.session_id else 0
            if session_id and rng.random() < 0.3:
                ends = (self._end_session, self._end_session, self._forget_all, self._name_otherwise)
                await rng.choice(ends)(connection, version, session_id, epoch)
                session_id = epoch = 0

    async def _end_session(self, connection: ModelConnection, version: int, session_id: int, epoch: int) -> None:
        """A last fetch, which is of no session any more; who asks for that again is told so."""
        last = await connection.answer(fetch_of(self.partition, self._offset, session=(session_id, LATEST)), version)
        if last is None:
            return
        self.judge_end(connection, session_id, last.error_code, last.session_id)
        if self._reads(connection, last):
            return
        again = await connection.answer(fetch_of(self.partition, self._offset, session=(session_id, epoch)), version)
        if again is not None:
            self.judge_end(connection, session_id, again.error_code - ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)

    async def _forget_all(self, connection: ModelConnection, version: int, session_id: int, epoch: int) -> None:
        """A session without partitions is none."""
        request = wire.FetchRequest
        name, number = self.partition
        asked = request(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch)
        asked.forgotten_topics_data = [request.ForgottenTopic(topic=name, partitions=[number])]
        last = await connection.answer(asked, version)
        if last is None:
            return
        if last.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND or not self._gave_way(connection, session_id):
            self.judge_end(connection, session_id, last.error_code, last.session_id + len(last.responses))
        again = await connection.answer(
            fetch_of(self.partition, self._offset, session=(session_id, epoch + 1)), version
        )
        if again is not None:
            self.judge_end(connection, session_id, again.error_code - ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)

    async def _name_otherwise(self, connection: ModelConnection, _version: int, session_id: int, epoch: int) -> None:
        """All fetches of a session name topics in one way (KIP-516)."""
        if not self.world.has_topic_ids:
            return
        asked = fetch_of(self.partition, self._offset, session=(session_id, epoch))
        asked.topics[0].topic_id = self.world.topics[self.partition[0]].topic_id
        answer = await connection.answer(asked, FETCH_BY_ID)
        if answer is not None:
            what = f"session {session_id} by names is asked by ids: {ErrorCode(answer.error_code).name}"
            gave_way = self._gave_way(connection, session_id)
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if gave_way else ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            self._requires(answer.error_code == code and not answer.responses, connection, what)

    def _gave_way(self, connection: ModelConnection, session_id: int) -> bool:
        """Whether the broker may have given a session up to make room for another one."""
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return self.world.fetch_sessions.excuses(code, connection.node, session_id)

    def judge_end(self, connection: ModelConnection, session_id: int, wrong: int, named: int) -> None:
        """A session that was ended answers nothing any more."""
        self._requires(wrong == 0 and named == 0, connection, f"session {session_id} goes on behind its end: {wrong}")

    def _reads(self, connection: ModelConnection, answer: Any) -> bool:
        """Whether another broker is to be asked."""
        for topic in answer.responses:
            for row in topic.partitions:
                if row.error_code != 0:
                    self._requires(self.world.tolerates(row.error_code, self.partition), connection, row)
                    self.world.forget_leader(self.partition)
                    return True
                batches = list(read_batches(row.records))
                self._offset = self.judge.fetched(
                    connection.name, self.partition, batches, self._offset, row.high_watermark
                )
        return False

    # Leader epochs

    def _epoch(self, node: int) -> int | None:
        """The epoch that a broker knows now, where it leads."""
        broker = self.world.brokers.get(node)
        manager = None if broker is None else broker.services.replica_manager
        found = None if manager is None else manager.hosted(TopicPartition(*self.partition))
        return None if found is None else found.leader_epoch

    async def _name_epochs(self, connection: ModelConnection) -> None:
        rng, node = self.rng, connection.node
        for _ in range(rng.randint(1, 4)):
            before = self._epoch(node)
            if before is None:
                return
            named = max(0, before + rng.choice((-2, -1, -1, 0, 1, 1)))
            self.requests -= 1
            code = await self._ask_in_epoch(connection, named)
            after = self._epoch(node)
            if code is None or after is None:
                return
            what = (
                f"epoch {named} gets {ErrorCode(code).name} of broker {node}, which was in {before} and is in {after}"
            )
            self._requires(code != 0 or before <= named <= after, connection, what)
            self._requires(code != ErrorCode.FENCED_LEADER_EPOCH or named < after, connection, what)
            self._requires(code != ErrorCode.UNKNOWN_LEADER_EPOCH or named > before, connection, what)
            self._requires(code == 0 or self.world.tolerates(code, self.partition) or before != named, connection, what)
            if code not in (0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
                self.world.forget_leader(self.partition)
                return
            await self.pause()

    async def _ask_in_epoch(self, connection: ModelConnection, named: int) -> int | None:
        """The error code of the answer; None where there is none any more."""
        rng, (name, number) = self.rng, self.partition
        kind = rng.random()
        if kind < 0.6:
            answer = await connection.answer(
                fetch_of(self.partition, self._offset, epoch=named), rng.choice(FETCH_VERSIONS)
            )
            if answer is None:
                return None
            row: Any = answer.responses[0].partitions[0]
            if row.error_code == 0:
                self._reads(connection, answer)
        elif kind < 0.8:
            listing = wire.ListOffsetsRequest
            asked = listing.ListOffsetsPartition(partition_index=number, current_leader_epoch=named, timestamp=LATEST)
            topics = [listing.ListOffsetsTopic(name=name, partitions=[asked])]
            answer = await connection.answer(listing(replica_id=-1, topics=topics), rng.choice(LIST_VERSIONS))
            row = None if answer is None else answer.topics[0].partitions[0]
        else:
            ending = wire.OffsetForLeaderEpochRequest
            end = ending.OffsetForLeaderPartition(partition=number, current_leader_epoch=named, leader_epoch=named)
            topic = ending.OffsetForLeaderTopic(topic=name, partitions=[end])
            answer = await connection.answer(ending(replica_id=-1, topics=[topic]), rng.choice(END_VERSIONS))
            row = None if answer is None else answer.topics[0].partitions[0]
        return None if row is None else int(row.error_code)

    # Neither sessions nor epochs

    async def _ask_for_what_is_not(self, connection: ModelConnection) -> None:
        """A level of isolation that there is not, or what follows an epoch that no record has."""
        self.requests -= 1
        asked = fetch_of(self.partition, self._offset)
        if self.rng.random() < 0.5:
            asked.isolation_level = NO_ISOLATION
            answer = await connection.answer(asked, self.rng.choice(SESSION_VERSIONS))
            if answer is not None:
                codes = {answer.error_code, *(row.error_code for topic in answer.responses for row in topic.partitions)}
                self._requires(codes == {ErrorCode.UNKNOWN_SERVER_ERROR}, connection, f"isolation 2 gets {codes}")
            return
        asked.topics[0].partitions[0].last_fetched_epoch = MAX_EPOCH
        answer = await connection.answer(asked, FETCH_WITH_LAST_EPOCH)
        if answer is not None:
            row = answer.responses[0].partitions[0]
            is_right = row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or (
                row.error_code != 0 and self.world.tolerates(row.error_code, self.partition)
            )
            self._requires(is_right, connection, f"an epoch that is yet to come is followed: {row}")

    def _requires(self, holds: bool, connection: ModelConnection, what: object) -> None:
        if not holds:
            self.judge.fail(f"{connection.name}: {what}")
