"""A client that writes a topic of its own with acks=all, and has its replicas be others all the time: fewer, other
ones, all again; most of all where a follower is behind, which is then to stay and one that is in sync to go.

In the end all that was acknowledged is there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.log_life import LogLife
from tests.simulation.replication_witness import MIN_IN_SYNC

if TYPE_CHECKING:
    from tests.simulation.several import Several

PLACED, CUTTING = 0.4, 0.5
"""The shares of the histories of clusters with three replicas and more that have such a client, and of its steps that
have a follower be behind."""
LEAST = 2
FEWEST_NODES = 3
ASK_SECONDS, LAGGING_SECONDS, LOOK_SECONDS = 10.0, 8.0, 0.02
REASSIGN = 0
DONE = frozenset({ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS})
NOT_YET = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""What a controller says that has lost its office, or does not know all brokers; and Kafka's of a replica that is not
there."""


class PlacedLog(LogLife):
    """One partition, which moves."""

    kind = "placed"
    world: Several

    def __init__(self, world: Several, number: int) -> None:
        super().__init__(world, number, world.placing)
        self.steps = self.rng.randint(15, 60)
        self.codecs = (0,)

    def configs(self) -> dict[str, str]:
        return {MIN_IN_SYNC: str(LEAST)}

    async def step(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.6:
            await self.write(
                [(b"k", self.world.next_value(rng.choice((0, 300)))) for _ in range(rng.choice((1, 2, 5)))]
            )
        elif kind < 0.9:
            await self._give_up_one_in_sync()
        else:
            await self._move(rng.sample(list(self.world.nodes), rng.randint(LEAST, len(self.world.nodes))))

    async def _give_up_one_in_sync(self) -> None:
        """When a follower is behind, or after a while: it stays, and of those in sync the leader alone."""
        world, rng = self.world, self.rng
        found = self._layout()
        if found is not None and len(found.replicas) < len(world.nodes):
            await self._move(list(world.nodes))
        cuts = world.fails and rng.random() < CUTTING
        if cuts:
            self._cut_off()
        until = world.loop.time() + LAGGING_SECONDS * (1.0 if cuts else rng.random())
        while (found := self._layout()) is not None and world.loop.time() < until:
            behind = [each for each in found.replicas if each not in (*found.isr, *found.adding)]
            if behind and len(found.isr) > 1:
                leader = world.in_force(*self.partition).leader
                kept = [leader] if leader in found.isr else list(found.isr[:1])
                await self._move(rng.sample([*kept, *behind], len(kept) + len(behind)))
                await asyncio.sleep(rng.choice((0.0, 0.3, 2.0)) * rng.random())
                break
            await asyncio.sleep(LOOK_SECONDS)
        if cuts:
            world.network.heal()

    def _cut_off(self) -> None:
        """A follower does not reach its leader for a while."""
        world = self.world
        leader = world.in_force(*self.partition).leader
        followers = [each for each in world.nodes if each != leader]
        if leader > 0:
            follower = self.rng.choice(followers)
            self.judge.note("%s: brokers %d and %d cannot reach each other", self.name, leader, follower)
            world.cut_off(leader, follower)

    def _layout(self) -> Any:
        """Where the partition is; None where it is not, or no state is known."""
        found = [each for key, each in self.world.layouts().items() if (key[0], key[2]) == self.partition]
        return found[0] if found else None

    async def _move(self, target: list[int]) -> None:
        """Ask once each that may decide; where that comes to nothing, the next change may."""
        self.judge.note("%s: is to be on %s", self.name, target)
        there = sorted(self.world.brokers)
        for node in self.rng.sample(there, len(there)):
            code = await self._ask_for(node, target)
            if code is None or code in DONE:
                return
            if code not in NOT_YET:
                self.fail(f"is not to be on {target}: {ErrorCode(code).name}")

    async def _ask_for(self, node: int, target: list[int]) -> int | None:
        """What a broker says; None where it may have done it."""
        request = wire.AlterPartitionReassignmentsRequest
        row = request.ReassignablePartition(partition_index=0, replicas=target)
        topic = request.ReassignableTopic(name=self.topic, partitions=[row])
        connection = await self.connect(node)
        if connection is None:
            return int(ErrorCode.NOT_CONTROLLER)
        answer = await connection.answer(request(timeout_ms=int(ASK_SECONDS * 1000), topics=[topic]), REASSIGN)
        if not connection.gone:
            connection.finish(self.rng)
        return None if answer is None else int(answer.error_code or answer.responses[0].partitions[0].error_code)

    async def read_back(self) -> None:
        batches, _ = await self.settled(0)
        there = {at: value for batch in batches for at, value in batch.values}
        for each in self.written:
            if each.offset >= 0 and there.get(each.offset) != each.value:
                self.fail(f"{each} is gone")


def draw_placed(world: Several) -> list[PlacedLog]:
    """The one of a history, mostly none."""
    if world.placing.random() >= PLACED or world.scale.nodes < FEWEST_NODES or world.replicas < FEWEST_NODES:
        return []
    if world.has_old_formats or not world.cuts_by_epochs(""):
        return []  # Without epochs followers drop what they do not know to be committed (KIP-101).
    made = PlacedLog(world, 0)
    world.lives.append(made)
    return [made]


__all__ = ["PlacedLog", "draw_placed"]
