"""A client that logs in, whose session ends (KIP-368), and whose right to read goes while a fetch of its waits.

The rules: a session lasts as long as the login says; until then its connection stays, and behind that it ends with the
next request that does not log in again.  A fetch that waits gives nothing that was written after its right was taken
away (docs/compatibility.md: Apache Kafka's does), and the next one of the same fetch session is refused, until the
right is there again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.simulation.client import Client
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.records import encode_batch, read_batches
from tests.simulation.unauthenticated_clients import ALLOW, LITERAL, OTHER_USER, PASSWORD, PORT, READ, TOPIC, USER

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

REAUTHENTICATE_MS = (0, 1500, 4000)
"""What `connections.max.reauth.ms` may be; 0: sessions have no end."""
AGAIN_AFTER_SECONDS = 1.2
"""Brokers take no second login within a second."""
SLACK_SECONDS = 0.005
"""What clocks in milliseconds round off."""
WAIT_MS = 3000
NO_END = 1 << 62
AUTHENTICATE_VERSIONS = (0, 1, 2)
FIRST_WITH_LIFETIME = 1
FETCH_VERSIONS = (7, 11, 12)
_SALT = 0x6E57


def drawn_reauth_ms(seed: int) -> int:
    """What the brokers of a history are set to."""
    return random.Random(seed ^ _SALT).choice(REAUTHENTICATE_MS)


class Guest(Client):
    """See the module."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name, world.later)
        self.requests = requests
        self._expires = (float("inf"), float("inf"))
        """When the session ends: at the earliest, and at the latest."""

    async def run(self) -> None:
        while self.requests > 0 and not self.world.writers_done:
            connection = await self.world.connect(1, f"{self.name}.{self.requests}", self.name, port=PORT)
            self.requests -= 1
            if connection is None or not await self._log_in(connection):
                await self.try_later()
                continue
            if self.rng.random() < 0.5:
                await self._outlive(connection)
            else:
                await self._wait_without_right(connection)
            if not connection.gone:
                connection.finish(self.rng)
            await self.try_later()

    # A session

    async def _log_in(self, connection: ModelConnection, user: str = OTHER_USER) -> bool:
        """Whether it is logged in, for the first time or again."""
        world, version = self.world, self.rng.choice(AUTHENTICATE_VERSIONS)
        shaken = await connection.answer(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if shaken is None:
            return False
        sent = world.loop.time()
        request = wire.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode())
        answer = await connection.answer(request, version)
        if answer is None:
            return False
        expected = 0 if version < FIRST_WITH_LIFETIME else world.reauth_ms
        if answer.error_code != 0 or answer.session_lifetime_ms != expected:
            self.judge.fail(f"{connection.name}: a login for {world.reauth_ms} ms in version {version}: {answer}")
        if world.reauth_ms:
            seconds = world.reauth_ms / 1000
            self._expires = (sent + seconds - SLACK_SECONDS, world.loop.time() + seconds + SLACK_SECONDS)
        return True

    async def _outlive(self, connection: ModelConnection) -> None:
        """Ask something now and then, log in again at times, and go on until the session is over."""
        world, rng = self.world, self.rng
        since = world.loop.time()
        until = since + 2.5 * max(1.0, world.reauth_ms / 1000)
        while not connection.gone and world.loop.time() < until:
            await asyncio.sleep(rng.choice((0.05, 0.3, 1.0)) * rng.random())
            now = world.loop.time()
            if now - since > AGAIN_AFTER_SECONDS and world.reauth_ms and now < self._expires[0] and rng.random() < 0.3:
                if rng.random() < 0.2:
                    await self._become_another(connection)
                    return
                # The session that is may end amid this.
                was_closed, connection.may_be_closed = connection.may_be_closed, True
                if not await self._log_in(connection):
                    return
                connection.may_be_closed = was_closed
                since = world.loop.time()
                until = max(until, since + 1.5 * world.reauth_ms / 1000)
            elif not await self._is_served(connection):
                return
        if not connection.gone and self._expires[1] < world.loop.time():
            await self._is_served(connection)

    async def _is_served(self, connection: ModelConnection) -> bool:
        """Ask something; whether it was answered, which it is as long as the session lasts, and no longer."""
        sent, was_closed = self.world.loop.time(), connection.may_be_closed
        # Its request may come when the session is over.
        connection.may_be_closed = True
        answer = await connection.answer(wire.MetadataRequest(topics=[]), 9)
        now = self.world.loop.time()
        if answer is not None and sent > self._expires[1]:
            self.judge.fail(
                f"{connection.name} is served at {now:.3f}, and its session ended at {self._expires[1]:.3f}"
            )
        may_fail = was_closed or self.world.fails or self.world.disks.take_part
        if answer is None and now < self._expires[0] and not may_fail:
            self.judge.fail(f"{connection.name} is hung up on, and its session lasts until {self._expires[0]:.3f}")
        connection.may_be_closed = was_closed
        return answer is not None

    async def _become_another(self, connection: ModelConnection) -> None:
        """Who has logged in as one cannot go on as another."""
        connection.may_be_closed = True
        shaken = await connection.answer(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        request = wire.SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        answer = None if shaken is None else await connection.answer(request, 1)
        if answer is not None and answer.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            self.judge.fail(f"{connection.name} of {OTHER_USER} goes on as {USER}: {answer}")

    # A right that goes

    async def _wait_without_right(self, connection: ModelConnection) -> None:
        """Have a fetch wait, and its right to read go meanwhile."""
        rng, admin = self.rng, await self.connect(1)
        if admin is None:
            return
        connection.may_be_closed = admin.may_be_closed = True
        topic = rng.choice(list(self.world.topics.values()))
        partition = (topic.name, rng.randrange(topic.partitions))
        if await self._may_read(admin, partition, True):
            await self._lose_right(connection, admin, partition)
        if not await self._may_read(admin, partition, False):
            # It may still be there, and go later: nothing can be said of this guest any more.
            self.requests = 0
        if not admin.gone:
            admin.finish(rng)

    async def _lose_right(self, connection: ModelConnection, admin: ModelConnection, partition: Partition) -> None:
        version, end = self.rng.choice(FETCH_VERSIONS), self.judge.ledger(partition).committed_end
        first = await self._ask(connection, partition, end, (0, 0), 0, version)
        if first is None:
            return
        if first.error_code != 0:
            self.judge.fail(f"{connection.name}: the first fetch answers {ErrorCode(first.error_code).name}")
        if self._code(first) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.judge.fail(f"{connection.name} may read {partition}, and is refused")
        row: Any = first.responses[0].partitions[0] if first.responses else None
        if first.session_id == 0 or row is None or row.error_code != 0:
            return
        for batch in read_batches(row.records):
            end = batch.last_offset + 1
        waiting = self.world.loop.create_task(
            self._ask(connection, partition, end, (first.session_id, 1), WAIT_MS, version)
        )
        await asyncio.sleep(self.rng.random() * WAIT_MS / 1000)
        gone = await self._may_read(admin, partition, False)
        end_without_right = self._log_end(partition)
        await self._write(admin, partition)
        answer = await waiting
        if answer is None or not gone or self._is_over(connection, answer, first.session_id):
            return
        for batch in (
            each for topic in answer.responses for row in topic.partitions for each in read_batches(row.records)
        ):
            if batch.base_offset >= end_without_right:
                self.judge.fail(
                    f"{connection.name} gets {batch.base_offset} of {partition}, written after its right to read went, "
                    f"when {end_without_right} was the end"
                )
        epoch = 2
        for may_read in (False, self.rng.random() < 0.5):
            if may_read and not await self._may_read(admin, partition, True):
                return
            answer = await self._ask(connection, None, end, (first.session_id, epoch), 0, version)
            if answer is None or self._is_over(connection, answer, first.session_id):
                return
            epoch += 1
            is_refused = self._code(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            has_records = any(row.records for topic in answer.responses for row in topic.partitions)
            if is_refused is may_read or (has_records and not may_read):
                self.judge.fail(f"{connection.name}: may read {partition}: {may_read}, and gets {answer}")

    def _is_over(self, connection: ModelConnection, answer: Any, session_id: int) -> bool:
        """Whether the session has made room for another one, of which no other has to know."""
        code = answer.error_code
        if code != 0 and not self.world.fetch_sessions.excuses(code, connection.node, session_id):
            self.judge.fail(f"{connection.name}: fetch session {session_id} answers {ErrorCode(code).name}")
        return bool(code != 0)

    async def _write(self, admin: ModelConnection, partition: Partition) -> None:
        """Something that whoever waits there would get."""
        request, values = wire.ProduceRequest, [self.world.next_value(0)]
        row = request.PartitionProduceData(index=partition[1], records=encode_batch(values, self.world.now_ms()))
        topic = request.TopicProduceData(name=partition[0], partition_data=[row])
        floor = self.judge.sends(admin.name, partition, values)
        answer = await admin.answer(request(acks=-1, timeout_ms=20_000, topic_data=[topic]), 9)
        got = None if answer is None else answer.responses[0].partition_responses[0]
        if got is not None and got.error_code == 0:
            self.judge.acknowledged(admin.name, partition, values, got.base_offset, floor, committed=True, certain=True)

    def _log_end(self, partition: Partition) -> int:
        """Where a partition ends now; far away where nobody leads it."""
        broker = self.world.brokers.get(1)
        hosted = None if broker is None else broker.services.replica_manager.hosted(TopicPartition(*partition))
        return NO_END if hosted is None else hosted.log.log_end_offset

    @staticmethod
    def _code(answer: Any) -> int:
        """What it says of the one partition; 0 where it says nothing."""
        return next((int(row.error_code) for topic in answer.responses for row in topic.partitions), 0)

    async def _ask(
        self,
        connection: ModelConnection,
        partition: Partition | None,
        offset: int,
        session: tuple[int, int],
        wait_ms: int,
        version: int,
    ) -> Any:
        fetch = wire.FetchRequest
        topics = []
        if partition is not None:
            row = fetch.FetchPartition(partition=partition[1], fetch_offset=offset, partition_max_bytes=1000)
            topics = [fetch.FetchTopic(topic=partition[0], partitions=[row])]
        session_id, epoch = session
        request = fetch(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
        )
        return await connection.answer(request, version, allowed_seconds=PATIENCE_SECONDS + wait_ms / 1000)

    async def _may_read(self, admin: ModelConnection, partition: Partition, may_read: bool) -> bool:
        """Give the right to read a topic, or take it away; whether that was done."""
        if may_read:
            binding = {"resource_type": TOPIC, "resource_name": partition[0], "resource_pattern_type": LITERAL}
            binding |= {"principal": f"User:{OTHER_USER}", "host": "*", "operation": READ, "permission_type": ALLOW}
            request = wire.CreateAclsRequest
            made = await admin.answer(request(creations=[request.AclCreation(**binding)]), 3)
            return made is not None and made.results[0].error_code == 0
        chosen = wire.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=partition[0],
            pattern_type_filter=LITERAL,
            principal_filter=f"User:{OTHER_USER}",
            host_filter="*",
            operation=READ,
            permission_type=ALLOW,
        )
        gone = await admin.answer(wire.DeleteAclsRequest(filters=[chosen]), 3)
        return gone is not None and gone.filter_results[0].error_code == 0


__all__ = ["Guest", "drawn_reauth_ms"]
