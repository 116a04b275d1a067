"""Who makes a topic, deletes it and makes it again, adds partitions and alters settings, and looks at each answer.

A request whose connection is gone may have been carried out: it is sent again until the answer says how things are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration import moving
from tests.simulation.administration.lives import FOREVER, MAX_MESSAGE, MIN_IN_SYNC, ChangingTopic, Life
from tests.simulation.administration.setting import Setting
from tests.simulation.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World

CREATE_VERSIONS = (2, 4, 5, 7, 7)
DELETE_VERSIONS = (1, 3, 5, 6, 6)
FIRST_DELETE_BY_ID = 6
FIRST_CREATE_WITH_IDS = 7
FIRST_METADATA_WITH_IDS = 10
PATIENCE_SECONDS = 120.0
"""However long the faults of a history last, a change is made within this time."""
AGAIN_SECONDS = 5.0
"""Behind so long a topic that is still there is deleted again."""
ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NOT_YET = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
"""What a cluster without a controller, or with too few brokers, says; of replicas to be on a broker that is not there,
too, as Kafka's controller."""
SETTINGS: dict[str, tuple[int, ...]] = {
    MAX_MESSAGE: (400, 2000, 1_048_588),
    MIN_IN_SYNC: (1, 1, 2),
    "segment.ms": (10, 1000, 604_800_000),
    "retention.ms": (3_600_000, 604_800_000, -1),
    "retention.bytes": (1 << 30, -1),
    "flush.messages": (1, 5, 2**63 - 1),
    "segment.bytes": (1 << 20, 1 << 30),
}
DEFAULTS = {MAX_MESSAGE: 1_048_588}
TOPIC = 2
SET = 0


class Administrator(Client):
    """The one that changes a topic."""

    def __init__(self, world: World, name: str, topic: ChangingTopic, changes: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.changes = changes
        self._pauses = self.rng.choice(((0.0,), (0.0, 0.01), (0.01, 0.3), (0.3, 2.0)))

    async def run(self) -> None:
        rng = self.rng
        while self.changes > 0:
            self.changes -= 1
            await asyncio.sleep(rng.choice(self._pauses) * rng.random())
            life = self.topic.life
            assert life is not None
            if life.deletion_asked_at < FOREVER:
                await self.make()
            elif (kind := rng.random()) < 0.4:
                await self._delete(life)
                if rng.random() < 0.5:
                    await self.make()
            elif kind < 0.6 and life.partitions < 5:
                await self._grow(life)
            elif kind < 0.65 or (kind < 0.72 and len(self.world.log_dirs(1)) > 1):
                await moving.move_directory(self, life)
                if rng.random() < 0.3:
                    await moving.move_directory(self, life)  # While the first may be under way.
            elif kind < 0.8 and self.world.scale.nodes > 1:
                await (moving.move_replicas if rng.random() < 0.7 else moving.elect)(self, life)
            else:
                await self._alter(life)

    # One change each

    async def make(self) -> None:
        """Make the topic, which nobody else does."""
        rng, world, topic = self.rng, self.world, self.topic
        chosen = {name: rng.choice(values) for name, values in SETTINGS.items() if rng.random() < 0.2}
        before = topic.life
        life = topic.begins(world.loop.time(), rng.choice((1, 1, 2, 4)))
        for name in SETTINGS:
            life.settings[name] = Setting(chosen.get(name, DEFAULTS.get(name, 0)), topic.lag)
        life.replicas = 1 if world.scale.nodes == 1 else rng.choice((2, world.scale.nodes))
        request = wire.CreateTopicsRequest
        row = request.CreatableTopic(
            name=topic.name,
            num_partitions=life.partitions,
            replication_factor=life.replicas,
            configs=[request.CreatableTopicConfig(name=name, value=str(value)) for name, value in chosen.items()],
        )
        version = rng.choice(CREATE_VERSIONS)
        self.judge.note("%s: %s is made, with %s", self.name, life.key, chosen)
        begins, is_unsure = world.loop.time(), False
        while not life.topic_id:
            asked_at = world.loop.time()
            answer = await self._ask(request(topics=[row], timeout_ms=10_000), version)
            is_unsure |= world.controllers_lost_at >= asked_at
            code = None if answer is None else answer.topics[0].error_code
            if code == 0 and version >= FIRST_CREATE_WITH_IDS:
                life.topic_id = bytes(answer.topics[0].topic_id)
            elif code == 0:
                life.topic_id = await self._find_id()
            elif code == ErrorCode.TOPIC_ALREADY_EXISTS and (is_unsure or world.scale.nodes > 1):
                found = await self._id_now()
                if found and found not in self._ids():
                    self._require(is_unsure, f"{life.key} is there before it is made")
                    life.topic_id = found
                elif found and before and world.may_lose_leaders and world.loop.time() - begins > AGAIN_SECONDS:
                    await self._ask_to_delete(before, FIRST_DELETE_BY_ID)
            else:
                self._wait_for(code, f"{life.key} cannot be made", begins)
                # Without an answer, or with one that came too early, it may yet be made.
                is_unsure |= code in (None, ErrorCode.REQUEST_TIMED_OUT)
            if not life.topic_id:
                self._wait_for(None, f"{life.key} cannot be made, {code}", begins)
                await self.try_later()
        now = world.loop.time()
        life.made_at = now
        world.topic_names[life.topic_id] = topic.name
        self.judge.note("%s: %s is there", self.name, life.key)
        for each in topic.lives:
            if each is not life:
                each.ended_at = min(each.ended_at, now)

    async def _delete(self, life: Life) -> None:
        world = self.world
        life.deletion_asked_at = begins = world.loop.time()
        version = self.rng.choice(DELETE_VERSIONS)
        is_unsure = False
        self.judge.note("%s: %s is deleted", self.name, life.key)
        while True:
            asked_at = world.loop.time()
            code = await self._ask_to_delete(life, version)
            is_unsure |= world.controllers_lost_at >= asked_at
            # Another controller may have yet to learn of the topic.
            if code == 0 or (code in ABSENT and (is_unsure or world.may_lose_leaders)):
                break
            self._wait_for(code, f"{life.key} cannot be deleted", begins)
            is_unsure |= code in (None, ErrorCode.REQUEST_TIMED_OUT)
            await self.try_later()
        if world.scale.nodes == 1:
            life.ended_at = world.loop.time()
        self.judge.note("%s: %s is gone", self.name, life.key)

    async def _ask_to_delete(self, life: Life, version: int) -> int | None:
        request = wire.DeleteTopicsRequest
        if version < FIRST_DELETE_BY_ID:
            asked = request(topic_names=[life.name], timeout_ms=10_000)
        elif self.rng.random() < 0.3:
            asked = request(topics=[request.DeleteTopicState(name=life.name)], timeout_ms=10_000)
        else:
            asked = request(topics=[request.DeleteTopicState(name=None, topic_id=life.topic_id)], timeout_ms=10_000)
        answer = await self._ask(asked, version)
        return None if answer is None else int(answer.responses[0].error_code)

    async def _grow(self, life: Life) -> None:
        request = wire.CreatePartitionsRequest
        count = life.most_partitions = life.partitions + self.rng.choice((1, 2))
        row = request.CreatePartitionsTopic(name=life.name, count=count, assignments=None)
        self.judge.note("%s: %s gets %d partitions", self.name, life.key, count)

        def code_of(answer: Any) -> int:
            return int(answer.results[0].error_code)

        life.grown_at = FOREVER
        if life.moved_at < FOREVER:
            life.grown_amid_moves.update(range(life.partitions, count))
        await self.insist(
            request(topics=[row], timeout_ms=10_000),
            3,
            code_of,
            ErrorCode.INVALID_PARTITIONS,
            f"{life.key} cannot grow",
        )
        life.partitions, life.grown_at = count, self.world.loop.time()

    async def _alter(self, life: Life) -> None:
        rng, request = self.rng, wire.IncrementalAlterConfigsRequest
        chosen = {name: rng.choice(SETTINGS[name]) for name in rng.sample(list(SETTINGS), rng.choice((1, 1, 2)))}
        rows = [
            request.AlterableConfig(name=name, config_operation=SET, value=str(value)) for name, value in chosen.items()
        ]
        resource = request.AlterConfigsResource(resource_type=TOPIC, resource_name=life.name, configs=rows)
        for name, value in chosen.items():
            life.settings[name].asked(value, self.world.loop.time())
        self.judge.note("%s: %s is given %s", self.name, life.key, chosen)

        def code_of(answer: Any) -> int:
            return int(answer.responses[0].error_code)

        await self.insist(request(resources=[resource]), rng.choice((0, 1)), code_of, None, f"{life.key} {chosen}")
        for name in chosen:
            life.settings[name].acknowledged(self.world.loop.time())

    # How they are asked for

    async def insist(
        self,
        request: Any,
        version: int,
        code_of: Callable[[Any], int],
        done: int | None,
        what: str,
        refusal: int | None = None,
    ) -> int:
        """Ask until it is done; `done` is what is answered where it was done before, `refusal` what may be as well."""
        begins, is_unsure = self.world.loop.time(), False
        while True:
            asked_at = self.world.loop.time()
            answer = await self._ask(request, version)
            is_unsure |= self.world.controllers_lost_at >= asked_at
            code = None if answer is None else code_of(answer)
            if code == 0 or (is_unsure and code is not None and code == done):
                return int(code)
            if code is not None and code == refusal:
                return code
            # A broker that has just started, or come to be the controller, has yet to learn of the topic.
            self._wait_for(None if code in ABSENT and self._may_lag() else code, what, begins)
            is_unsure |= code in (None, ErrorCode.REQUEST_TIMED_OUT)
            await self.try_later()

    def _may_lag(self) -> bool:
        return self.world.scale.nodes > 1

    async def _ask(self, request: Any, version: int) -> Any:
        """The answer of a broker; None where the connection was lost."""
        connection = await self.connect(self.rng.choice(self.world.nodes))
        if connection is None:
            return None
        answer = await connection.answer(request, version)
        if not connection.gone:
            connection.finish(self.rng)
        return answer

    async def _id_now(self) -> bytes:
        """The id that a broker has for the name; nothing where it has none."""
        row = wire.MetadataRequest.MetadataRequestTopic(name=self.topic.name)
        answer = await self._ask(wire.MetadataRequest(topics=[row]), FIRST_METADATA_WITH_IDS)
        if answer is None or answer.topics[0].error_code in ABSENT:
            return b""
        return bytes(answer.topics[0].topic_id)

    def _ids(self) -> set[bytes]:
        """Those that the topic has had: a broker that nobody reaches may know one of long ago."""
        return {each.topic_id for each in self.topic.lives}

    async def _find_id(self) -> bytes:
        """The id of the topic that has been made."""
        begins = self.world.loop.time()
        while True:
            found = await self._id_now()
            if found and found not in self._ids():
                return found
            self._wait_for(None, f"{self.topic.name} is not there", begins)
            await self.try_later()

    def _wait_for(self, code: int | None, what: str, begins: float) -> None:
        """The change may be asked for again, if the time for it is not over."""
        # Where the last disk has failed there is nobody to have it.
        is_full = code == ErrorCode.INVALID_REPLICATION_FACTOR and self.world.disks.may_hang_up(1)
        if code is not None and not (is_full or (code in NOT_YET and self.world.scale.nodes > 1)):
            self.judge.fail(f"{self.name}: {what}: {ErrorCode(code).name}")
        if self.world.loop.time() - begins > PATIENCE_SECONDS:
            self.judge.fail(f"{self.name}: {what} in {PATIENCE_SECONDS} s")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.judge.fail(f"{self.name}: {what}")
