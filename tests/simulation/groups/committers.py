"""Model committers: clients that note in a group, of which they are no members, how far they are.

Each has a group of its own and commits ascending offsets, so that what a fetch may find is known: not less than what
was acknowledged or found before, and nothing that was not sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import IN_DOUBT, NOT_NOW, Client

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

COMMIT_VERSIONS = (2, 3, 5, 6, 7, 8, 9)
FETCH_VERSIONS = (1, 2, 3, 5, 6, 7)
FIND_VERSION = 3
NOBODY = -1
NOT_HERE = (
    frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    | NOT_NOW
    | IN_DOUBT
)
"""The group's coordinator is another broker by now, or has yet to read what it has to know."""


class Committer(Client):
    """Commits, several requests at a time, and asks at times what is committed."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.requests = requests
        self.depth = rng.choice((1, 1, 2, 4))
        self.commit_version = rng.choice(COMMIT_VERSIONS)
        self.fetch_version = rng.choice(FETCH_VERSIONS)
        topic = rng.choice(list(world.topics.values()))
        self.partitions: list[Partition] = [(topic.name, number) for number in range(topic.partitions)]
        self._offset = 0
        self._floor: dict[Partition, int] = dict.fromkeys(self.partitions, NOBODY)
        """What was acknowledged or found: nothing below it may be found any more."""
        self._sent: dict[Partition, int] = dict.fromkeys(self.partitions, NOBODY)
        self._is_checked = False

    async def run(self) -> None:
        while self.requests > 0 or not self._is_checked:
            connection = await self._find()
            if connection is None:
                await self.try_later()
                continue
            while connection.may_send and self.requests > 0:
                while self.requests > 0 and len(connection.outstanding) < self.depth:
                    self.requests -= 1
                    if self.rng.random() < 0.7:
                        self._commit(connection)
                    else:
                        self._ask(connection)
                connection.flush()
                await self.pause()
                if connection.outstanding:
                    await connection.change()
            while connection.outstanding:
                await connection.change()
            if connection.may_send:
                self._ask(connection, is_last=self.requests <= 0)
                connection.flush()
                await connection.change()
            if not connection.gone:
                connection.finish(self.rng)
            if not self._is_checked:
                await self.try_later()

    async def _find(self) -> ModelConnection | None:
        """A connection to the group's coordinator, where there is one."""
        asked = await self.connect(self.rng.choice(self.world.nodes))
        if asked is None:
            return None
        answer = await asked.answer(wire.FindCoordinatorRequest(key=self.name, key_type=0), FIND_VERSION)
        if not asked.gone:
            asked.finish(self.rng)
        if answer is None:
            return None
        if answer.error_code != 0:
            self._require(answer.error_code in NOT_HERE, answer)
            return None
        found = await self.connect(answer.node_id)
        if found is not None and self.world.may_lose_leaders:
            # A coordinator that is replaced amid a commit cannot say whether that counts, and hangs up.
            found.may_be_closed = True
        return found

    def _commit(self, connection: ModelConnection) -> None:
        request = wire.OffsetCommitRequest
        partition = self.rng.choice(self.partitions)
        self._offset += 1
        offset = self._sent[partition] = self._offset
        row = request.OffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=""
        )
        topic = request.OffsetCommitRequestTopic(name=partition[0], partitions=[row])

        def judge(answer: Any) -> None:
            if answer is None:
                return
            code = answer.topics[0].partitions[0].error_code
            if code == 0:
                self._floor[partition] = max(self._floor[partition], offset)
            else:
                self._goes_elsewhere(connection, code, answer)

        connection.ask(
            request(group_id=self.name, generation_id_or_member_epoch=-1, member_id="", topics=[topic]),
            self.commit_version,
            judge,
        )

    def _ask(self, connection: ModelConnection, *, is_last: bool = False) -> None:
        request = wire.OffsetFetchRequest
        name = self.partitions[0][0]
        floors = dict(self._floor)
        indexes = [number for _, number in self.partitions]

        def judge(answer: Any) -> None:
            if answer is None:
                return
            if answer.error_code != 0:
                self._goes_elsewhere(connection, answer.error_code, answer)
                return
            for row in answer.topics[0].partitions:
                partition = (name, row.partition_index)
                if row.error_code != 0:
                    self._goes_elsewhere(connection, row.error_code, answer)
                    return
                found, floor, sent = row.committed_offset, floors[partition], self._sent[partition]
                self._require(found >= floor, f"{partition} is committed at {found}, and was at {floor}")
                self._require(found <= sent, f"{partition} is committed at {found}, and {sent} was sent last")
                self._floor[partition] = max(self._floor[partition], found)
            self._is_checked = self._is_checked or is_last

        connection.ask(
            request(
                group_id=self.name,
                topics=[request.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)],
            ),
            self.fetch_version,
            judge,
        )

    def _goes_elsewhere(self, connection: ModelConnection, code: int, answer: object) -> None:
        """The coordinator says that it is not, or not yet."""
        self._require(code in NOT_HERE, answer)
        # What is under way is answered first: hung up on, it could be served behind what comes next.
        connection.may_be_closed = True
        if connection.may_send:
            connection.half_close()

    def _require(self, holds: bool, what: object) -> None:
        if not holds:
            self.judge.fail(f"{self.name}: {what}")
