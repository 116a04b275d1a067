"""Clients of a listener that authenticates: those who do not log in, those who fail to, and one without rights.

The rules: without a login nothing is answered but what logging in takes, and the connection ends.  No name of a topic
or a group, no record and no setting leaves to a client that may not see it, unless it has named it itself.  A right
counts from the answer to its creation on, and no more from the answer to its deletion on, on open connections too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbroker._fast.wire.codec import Struct
from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.records import encode_batch, read_batches

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.topics import Topic
    from tests.simulation.world import World

SECURED = 0.28
"""The share of histories of one broker that have such a listener: a tenth of all."""
PORT = 9093
USER, OTHER_USER, PASSWORD = "stranger", "guest", "let me in"
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3
_SALT = 0x5EC0
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOGIN = f'{_MODULE} required user_{USER}="{PASSWORD}" user_{OTHER_USER}="{PASSWORD}";'


def is_secured(seed: int, nodes: int) -> bool:
    """Whether a history has a listener that authenticates, and an authorizer."""
    return nodes == 1 and random.Random(seed ^ _SALT).random() < SECURED


def security_settings(host: str, port: int, reauth_ms: int) -> Mapping[str, str]:
    """A broker's settings for it; whoever comes by the other listener may do everything."""
    return {
        "listeners": f"PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{PORT}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _LOGIN,
        "connections.max.reauth.ms": str(reauth_ms),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def texts_of(value: object) -> Iterator[str]:
    """All texts in a struct."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for name in value.__slots__:
            yield from texts_of(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def records_of(value: object) -> Iterator[Any]:
    """All records in a struct."""
    if isinstance(value, Struct):
        for name in value.__slots__:
            found = getattr(value, name)
            if name == "records" and found is not None and len(found):
                yield found
            yield from records_of(found)
    elif isinstance(value, list):
        for each in value:
            yield from records_of(each)


class Stranger(Client):
    """See the module."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests

    async def run(self) -> None:
        kinds = (self._says_nothing, self._fails_to_log_in, self._looks_around, self._looks_around, self._is_let_in)
        while self.requests > 0 and not self.world.writers_done:
            connection = await self.world.connect(1, f"{self.name}.{self.requests}", self.name, port=PORT)
            if connection is None:
                await self.try_later()
                continue
            # Those who do not log in are hung up upon, and brokers crash.
            connection.may_be_closed = True
            await self.rng.choice(kinds)(connection)
            if not connection.gone:
                connection.finish(self.rng)
            await self.try_later()

    @property
    def _topic(self) -> Topic:
        return self.rng.choice(list(self.world.topics.values()))

    def _may_know(self, request: object, answer: object) -> None:
        """The judge's rule."""
        named = set(texts_of(request))
        for text in texts_of(answer):
            if text in self.world.topics and text not in named:
                self.judge.fail(f"{self.name} gets to know of {text} by {type(answer).__name__}")
        for listed in ("groups", "transaction_states", "resources"):
            for row in getattr(answer, listed, ()) or ():
                if getattr(row, "error_code", 0) == 0:
                    self.judge.fail(f"{self.name} gets to know of {row} by {type(answer).__name__}")
        for _ in records_of(answer):
            self.judge.fail(f"{self.name} gets records by {type(answer).__name__}")

    # Without a login

    async def _says_nothing(self, connection: ModelConnection) -> None:
        """Asks without having logged in."""
        for request, version in self.rng.sample(list(self._questions()), 3):
            self.requests -= 1
            connection.ask(request, version, lambda answer: self._is_refused(connection, answer))
        connection.flush()
        while not connection.gone:
            await connection.change()

    def _is_refused(self, connection: ModelConnection, answer: object) -> None:
        if answer is not None:
            self.judge.fail(f"{connection.name} has not logged in, and gets {type(answer).__name__}")

    async def _fails_to_log_in(self, connection: ModelConnection) -> None:
        self.requests -= 1
        code = await self._log_in(
            connection, self.rng.choice((b"\0stranger\0wrong", b"\0nobody\0let me in", b"", b"x"))
        )
        if code is not None and code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            self.judge.fail(f"{connection.name} logs in with nonsense: {ErrorCode(code).name}")
        connection.ask(wire.MetadataRequest(topics=None), 9, lambda answer: self._is_refused(connection, answer))
        connection.flush()
        while not connection.gone:
            await connection.change()

    async def _log_in(self, connection: ModelConnection, token: bytes) -> int | None:
        """The error code of the answer; None where the connection is gone."""
        shaken = await connection.answer(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if shaken is None:
            return None
        if shaken.error_code != 0:
            self.judge.fail(f"{connection.name}: PLAIN is refused: {ErrorCode(shaken.error_code).name}")
        answer = await connection.answer(wire.SaslAuthenticateRequest(auth_bytes=token), self.rng.choice((0, 1, 2)))
        return None if answer is None else int(answer.error_code)

    # Without rights

    async def _enter(self, connection: ModelConnection) -> bool:
        code = await self._log_in(connection, f"\0{USER}\0{PASSWORD}".encode())
        if code not in (None, 0):
            self.judge.fail(f"{connection.name} cannot log in: {ErrorCode(code).name}")
        return code == 0

    async def _looks_around(self, connection: ModelConnection) -> None:
        """Asks for everything, a few requests at once."""
        if not await self._enter(connection):
            return
        questions = list(self._questions())
        for _ in range(self.rng.randint(1, 4)):
            for request, version in self.rng.sample(questions, self.rng.randint(1, 4)):
                self.requests -= 1
                connection.ask(request, version, lambda answer, asked=request: answer and self._may_know(asked, answer))
            connection.flush()
            while connection.outstanding and not connection.gone:
                await connection.change()

    def _fetch(self, topic: Topic) -> Any:
        fetch = wire.FetchRequest
        row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        return fetch(max_wait_ms=0, min_bytes=0, topics=[fetch.FetchTopic(topic=topic.name, partitions=[row])])

    def _questions(self) -> Iterator[tuple[Any, int]]:
        topic = self._topic
        fetch, produce, listing = wire.FetchRequest, wire.ProduceRequest, wire.ListOffsetsRequest
        yield wire.MetadataRequest(topics=None), self.rng.choice((1, 5, 9, 12))
        named = wire.MetadataRequest.MetadataRequestTopic
        yield wire.MetadataRequest(topics=[named(name=topic.name)]), 9
        yield wire.MetadataRequest(topics=[named(name=None, topic_id=topic.topic_id)]), 12
        yield self._fetch(topic), self.rng.choice((4, 7, 11, 12))
        row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        by_id = [fetch.FetchTopic(topic_id=topic.topic_id, partitions=[row])]
        yield fetch(max_wait_ms=0, min_bytes=0, topics=by_id), self.rng.choice((13, 16, 17))
        batch = encode_batch([b"of a stranger"], self.world.now_ms())
        data = produce.PartitionProduceData(index=0, records=batch)
        rows = [produce.TopicProduceData(name=topic.name, partition_data=[data])]
        yield produce(acks=1, timeout_ms=1000, topic_data=rows), self.rng.choice((3, 8, 9))
        place = listing.ListOffsetsPartition(partition_index=0, timestamp=-1)
        yield listing(replica_id=-1, topics=[listing.ListOffsetsTopic(name=topic.name, partitions=[place])]), 5
        yield wire.ListGroupsRequest(), self.rng.choice((0, 3, 4, 5))
        yield wire.DescribeGroupsRequest(groups=["committer-0", "group-0"]), 5
        yield wire.ListTransactionsRequest(), 0
        yield wire.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3
        yield wire.DescribeUserScramCredentialsRequest(users=None), 0
        yield wire.DescribeClientQuotasRequest(components=[]), 1
        yield wire.DescribeLogDirsRequest(topics=None), 1
        yield wire.ListPartitionReassignmentsRequest(topics=None), 0
        resource = wire.DescribeConfigsRequest.DescribeConfigsResource
        yield wire.DescribeConfigsRequest(resources=[resource(resource_type=TOPIC, resource_name=topic.name)]), 4
        yield wire.DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=1000), 5
        yield wire.DescribeTopicPartitionsRequest(topics=[]), 0

    # With a right that comes and goes

    async def _is_let_in(self, connection: ModelConnection) -> None:
        """Reads a topic while it may."""
        topic, admin = self._topic, await self.connect(1)
        if admin is None or not await self._enter(connection):
            return
        admin.may_be_closed = True
        self.requests -= 3
        await self._read(connection, topic, may_read=False)
        binding = {"resource_type": TOPIC, "resource_name": topic.name, "resource_pattern_type": LITERAL}
        binding |= {"principal": f"User:{USER}", "host": "*", "operation": READ, "permission_type": ALLOW}
        made = await admin.answer(wire.CreateAclsRequest(creations=[wire.CreateAclsRequest.AclCreation(**binding)]), 3)
        if made is not None and made.results[0].error_code == 0:
            await self._read(connection, topic, may_read=True)
        chosen = wire.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=topic.name,
            pattern_type_filter=LITERAL,
            principal_filter=f"User:{USER}",
            host_filter="*",
            operation=READ,
            permission_type=ALLOW,
        )
        gone = await admin.answer(wire.DeleteAclsRequest(filters=[chosen]), 3)
        if gone is not None and gone.filter_results[0].error_code == 0:
            await self._read(connection, topic, may_read=False)
        else:
            # It may still be there, and go later: nothing can be said of this stranger any more.
            self.requests = 0
        if not admin.gone:
            admin.finish(self.rng)

    async def _read(self, connection: ModelConnection, topic: Topic, *, may_read: bool) -> None:
        answer = await connection.answer(self._fetch(topic), self.rng.choice((4, 11, 12)))
        if answer is None or not answer.responses:
            return
        row = answer.responses[0].partitions[0]
        is_refused = row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if may_read and is_refused:
            self.judge.fail(f"{connection.name} may read {topic.name}, and is refused")
        if not may_read and (not is_refused or list(read_batches(row.records))):
            self.judge.fail(f"{connection.name} may not read {topic.name}, and gets {ErrorCode(row.error_code).name}")
