"""What members of a consumer group (KIP-848) commit, in their epoch and in earlier ones.

In its epoch a member may commit for any partition; in an earlier one for those that it has had since then, so that no
commit of an earlier owner counts; in a later one for none.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.coordination import MOVED, NOT_HERE

if TYPE_CHECKING:
    from tests.simulation.groups.consumers import Consumer
    from tests.simulation.judge import Partition

COMMIT, FETCH = 9, 7
GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})


class ConsumerCommits:
    """Of one member."""

    def __init__(self, member: Consumer) -> None:
        self._member = member
        self._register = member.group.offsets
        self._rng = random.Random(member.world.later.getrandbits(64))
        self._since: dict[Partition, int] = {}
        """In which epoch the member was told first of what it owns."""
        self._may_own: set[Partition] = set()
        """What it was given at some time of this life."""
        self._epochs: list[int] = []

    def begins_anew(self) -> None:
        """The member is another one from now on."""
        self._since.clear()
        self._may_own.clear()
        self._epochs.clear()

    def beats(self) -> None:
        """A heartbeat was answered."""
        me = self._member.me
        if not self._epochs or self._epochs[-1] != me.epoch:
            self._epochs.append(me.epoch)
        self._since = {each: self._since.get(each, me.epoch) for each in me.owned}
        self._may_own |= me.owned

    async def turn(self) -> None:
        """Commit something, or look at what is committed."""
        member = self._member
        if not self._epochs or member.me.epoch <= 0:
            return
        if self._rng.random() < 0.3:
            await self.look()
            return
        topic = self._rng.choice(list(member.world.topics.values()))
        partition = (topic.name, self._rng.randrange(topic.partitions))
        if member.me.owned and self._rng.random() < 0.7:
            partition = self._rng.choice(sorted(member.me.owned))
        epoch = member.me.epoch
        kind = self._rng.random()
        if kind < 0.4 and len(self._epochs) > 1:
            epoch = self._rng.choice(self._epochs[-3:-1])
        elif kind < 0.5:
            epoch += 1
        await self._commit(partition, epoch)

    def _expected(self, partition: Partition, epoch: int) -> frozenset[int]:
        """What the answer may be for a member in good standing."""
        current = self._member.me.epoch
        if epoch == current:
            return frozenset({0})
        since = self._since.get(partition)
        if epoch > current or (since is None and partition not in self._may_own):
            return frozenset({ErrorCode.STALE_MEMBER_EPOCH})
        if since is None:
            # It has given it back, which the group learns with the next heartbeat.
            return frozenset({0, ErrorCode.STALE_MEMBER_EPOCH})
        return frozenset({0 if epoch >= since else ErrorCode.STALE_MEMBER_EPOCH})

    async def _commit(self, partition: Partition, epoch: int) -> None:
        member, register, request = self._member, self._register, wire.OffsetCommitRequest
        offset, expected = register.sends(partition), self._expected(partition, epoch)
        row = request.OffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=""
        )
        asked = request(
            group_id=member.group.name,
            generation_id_or_member_epoch=epoch,
            member_id=member.member_id,
            topics=[request.OffsetCommitRequestTopic(name=partition[0], partitions=[row])],
        )
        answer = await member.coordinator.ask(asked, COMMIT)
        code = ErrorCode.NOT_COORDINATOR if answer is None else answer.topics[0].partitions[0].error_code
        if code in NOT_HERE:
            # It may be committed all the same.
            if code in MOVED:
                member.coordinator.lose()
            await member.try_later()
            return
        if code == 0:
            register.acknowledged(offset)
        else:
            register.refused(offset)
        if code not in expected and not (code in GONE and member.may_be_gone()):
            member.judge.fail(
                f"{member.name}: commits for {partition} in epoch {epoch}, is in {member.me.epoch}, has it since "
                f"{self._since.get(partition)}: {ErrorCode(code).name}"
            )

    async def look(self) -> bool:
        """Ask what is committed, and have that judged; False: the coordinator cannot say now."""
        member, register, request = self._member, self._register, wire.OffsetFetchRequest
        partitions = [(each.name, at) for each in member.world.topics.values() for at in range(each.partitions)]
        over = register.asks()
        begun = {each: register.has_begun(each) for each in partitions}
        topics = [
            request.OffsetFetchRequestTopic(name=each.name, partition_indexes=list(range(each.partitions)))
            for each in member.world.topics.values()
        ]
        answer: Any = await member.coordinator.ask(request(group_id=member.group.name, topics=topics), FETCH)
        if answer is None or answer.error_code in NOT_HERE:
            if answer is None or answer.error_code in MOVED:
                member.coordinator.lose()
            await member.try_later()
            return False
        if answer.error_code != 0:
            member.judge.fail(f"{member.name}: {member.group.name} is asked for its offsets: {answer}")
        for topic in answer.topics:
            for row in topic.partitions:
                partition = (topic.name, row.partition_index)
                register.found(member.name, partition, row.committed_offset, over, begun=begun[partition])
        return True


__all__ = ["ConsumerCommits"]
