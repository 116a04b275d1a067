"""ACLs in ZooKeeper: what Kafka wrote is read and followed, and what is written is Kafka's."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import pytest

from kbroker.cluster.zookeeper.acl_znodes import (
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
    AclResource,
    AclZnodes,
    decode_change,
    decode_entries,
    decode_extended_change,
    encode_change,
)
from kbroker.cluster.zookeeper.cluster_controller import ClusterController
from kbroker.cluster.zookeeper.session import BadVersionError, ensure_path, set_or_create
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.security_image import Acl
from kbroker.security.acl.changes import AclCreation, AclDeletion, id_of
from kbroker.security.acl.filters import AclFilter
from tests.cluster.zookeeper.fake import FakeEnsemble, run
from tests.unbroken import UNBROKEN

# As Apache Kafka 3.9.1 wrote them.
OF_KAFKA = b'{"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
EXTENDED_CHANGE = b'{"version":1,"resourceType":"TOPIC","name":"pre","patternType":"PREFIXED"}'
BOB = Acl(2, "t1", 3, "User:bob", "*", 3, 3)
PREFIXED = Acl(2, "pre", 4, "User:bob", "10.0.0.1", 10, 2)
OF_ID = Acl(5, "id", 3, "User:bob", "*", 12, 3)


class Node:
    """One broker's view."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.session = ensemble.session()
        self.cache = MetadataCache(ClusterImage.of("c"))
        self.znodes = AclZnodes(self.session)
        self.znodes.publish_to(self.cache)
        self.controller = ClusterController(
            1, self.session, self.cache, mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock(), UNBROKEN, None, self.znodes
        )

    @property
    def acls(self) -> set[Acl]:
        return set(self.cache.image.security.acls.values())

    async def make(self, *acls: Acl) -> list[Acl]:
        return await self.controller.alter_security(AclCreation({id_of(acl): acl for acl in acls}))

    async def delete(self, wanted: AclFilter) -> list[Acl]:
        keys = [key for key, acl in self.cache.image.security.acls.items() if wanted.selects(acl)]
        return await self.controller.alter_security(AclDeletion(keys))

    async def until(self, acls: set[Acl]) -> None:
        async with asyncio.timeout(60):
            while self.acls != acls:
                await asyncio.sleep(0)


def test_what_kafka_wrote_is_read_and_what_is_written_is_kafkas() -> None:
    """Brokers of both kinds would go by different rules."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await ensure_path(node.session, "/kafka-acl/Topic")
        await set_or_create(node.session, "/kafka-acl/Topic/t1", OF_KAFKA)
        await node.znodes.load()
        assert node.acls == {BOB}
        assert await node.make(BOB, PREFIXED, OF_ID) == [PREFIXED, OF_ID]
        assert ensemble.content("/kafka-acl/Topic/t1") == OF_KAFKA
        assert ensemble.content("/kafka-acl-extended/prefixed/Topic/pre") == (
            b'{"acls":[{"principal":"User:bob","permissionType":"Deny","host":"10.0.0.1",'
            b'"operation":"DescribeConfigs"}],"version":1}'
        )
        assert b'"operation":"IdempotentWrite"' in (ensemble.content("/kafka-acl/TransactionalId/id") or b"")
        changes = [ensemble.content(f"{LITERAL_CHANGES}/{each}") for each in ensemble.children_of(LITERAL_CHANGES)]
        assert changes == [b"TRANSACTIONAL_ID:id"]
        changes = [ensemble.content(f"{PREFIXED_CHANGES}/{each}") for each in ensemble.children_of(PREFIXED_CHANGES)]
        assert changes == [EXTENDED_CHANGE]
        again = Node(ensemble)
        await again.znodes.load()
        assert again.acls == {BOB, PREFIXED, OF_ID}
        assert again.cache.image.security.acls == node.cache.image.security.acls

    run(body)


def test_brokers_follow_what_others_make_and_delete() -> None:
    """A rule would count at one broker of the cluster alone."""

    async def body(ensemble: FakeEnsemble) -> None:
        first, second = Node(ensemble), Node(ensemble)
        await first.znodes.load()
        await second.znodes.load()
        await first.make(BOB)  # before the other follows
        following = asyncio.ensure_future(second.znodes.run())
        await second.until({BOB})
        await first.make(PREFIXED, OF_ID)
        await second.until({BOB, PREFIXED, OF_ID})
        assert await second.delete(AclFilter(resource_type=2)) == [BOB, PREFIXED]
        assert "t1" not in ensemble.children_of("/kafka-acl/Topic")
        assert second.acls == {OF_ID}
        first_following = asyncio.ensure_future(first.znodes.run())
        await first.until({OF_ID})
        for task in (following, first_following):
            task.cancel()

    run(body)


def test_what_changed_behind_a_lost_session_counts_without_its_notification() -> None:
    """A right that was taken away would stay at a broker that was away for longer than notifications are kept."""

    async def body(ensemble: FakeEnsemble) -> None:
        first, second = Node(ensemble), Node(ensemble)
        await first.znodes.load()
        await second.znodes.load()
        following = asyncio.ensure_future(second.znodes.run())
        await first.make(BOB, PREFIXED)
        await second.until({BOB, PREFIXED})
        second.session.drop()
        await first.delete(AclFilter(resource_name="pre"))
        await first.make(OF_ID)
        for folder in (LITERAL_CHANGES, PREFIXED_CHANGES):
            for name in ensemble.children_of(folder):
                ensemble.remove(f"{folder}/{name}")
        second.session.resume()
        await second.until({BOB, OF_ID})
        following.cancel()

    run(body)


def test_a_change_is_told_although_the_connection_is_lost_behind_its_write() -> None:
    """It would count at the broker that has made it alone."""

    async def body(ensemble: FakeEnsemble) -> None:
        first, second = Node(ensemble), Node(ensemble)
        await first.znodes.load()
        await second.znodes.load()
        following = asyncio.ensure_future(second.znodes.run())
        write = first.znodes._write

        async def write_and_lose(*arguments: Any) -> None:
            await write(*arguments)
            first.session.suspend()
            asyncio.get_running_loop().call_soon(first.session.resume)

        with mock.patch.object(first.znodes, "_write", write_and_lose):
            await first.make(BOB)
        await second.until({BOB})
        assert first.acls == {BOB}
        following.cancel()

    run(body)


def test_brokers_that_write_at_once_undo_nothing_of_each_other() -> None:
    """An administrator would be told of a rule that is not there."""

    async def body(ensemble: FakeEnsemble) -> None:
        nodes = [Node(ensemble) for _ in range(4)]
        for node in nodes:
            await node.znodes.load()
        acls = [BOB._replace(principal=f"User:{number}") for number in range(40)]
        await asyncio.gather(*(nodes[place % 4].make(acl) for place, acl in enumerate(acls)))
        entries = decode_entries(ensemble.content("/kafka-acl/Topic/t1"))
        assert len(entries) == len(acls)
        await asyncio.gather(
            *(nodes[place % 4].delete(AclFilter(principal=acl.principal)) for place, acl in enumerate(acls[:39]))
        )
        reading = Node(ensemble)
        await reading.znodes.load()
        # What a broker has not heard of yet it does not delete, as Kafka does not, either.
        assert acls[39] in reading.acls

    run(body)


def test_a_write_goes_on_from_what_another_broker_wrote_meanwhile() -> None:
    """It would be lost, or the request fail, in a busy cluster."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await node.znodes.load()
        await node.make(BOB)
        other = BOB._replace(principal="User:carol")
        real = node.session.set
        tried = 0

        async def late(path: str, data: bytes, version: int = -1) -> object:
            nonlocal tried
            tried += 1
            if tried == 1:
                entry = {"principal": "User:dave", "permissionType": "Allow", "host": "*", "operation": "Write"}
                known = json.loads(ensemble.content("/kafka-acl/Topic/t1") or b"")
                await real(path, json.dumps({"version": 1, "acls": [*known["acls"], entry]}).encode())
            return await real(path, data, version)

        with mock.patch.object(node.session, "set", late):
            await node.make(other)
        assert tried == 2
        assert node.acls == {BOB, other, Acl(2, "t1", 3, "User:dave", "*", 4, 3)}

    run(body)


def test_an_entry_of_an_operation_that_is_not_known_stays_and_counts_for_nothing() -> None:
    """A newer broker's rule would be lost when this one adds another."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await ensure_path(node.session, "/kafka-acl/Topic")
        strange = OF_KAFKA.replace(b"Read", b"Teleport")
        await set_or_create(node.session, "/kafka-acl/Topic/t1", strange)
        await node.znodes.load()
        assert node.acls == {BOB._replace(operation=0)}
        await node.make(BOB)
        assert b"Teleport" in (ensemble.content("/kafka-acl/Topic/t1") or b"")
        await node.delete(AclFilter(operation=3))
        assert ensemble.content("/kafka-acl/Topic/t1") == strange

    run(body)


def test_a_znode_that_makes_no_sense_is_told_of_and_takes_nothing_away(caplog: pytest.LogCaptureFixture) -> None:
    """A slip in one znode would let everybody in where rules kept them out."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await node.znodes.load()
        await node.make(BOB)
        following = asyncio.ensure_future(node.znodes.run())
        await node.session.set("/kafka-acl/Topic/t1", b'{"version":1,"acls":[{"principal":7}]}')
        other = Node(ensemble)
        await other.znodes.load()
        assert other.acls == set()
        await other.make(BOB._replace(resource_name="t2"))
        await node.until({BOB, BOB._replace(resource_name="t2")})
        following.cancel()
        with pytest.raises(Exception, match="/kafka-acl/Topic/t1 makes no sense"):
            await node.make(OF_ID, BOB._replace(principal="User:x"))

    run(body)
    assert "/kafka-acl/Topic/t1 is left out" in caplog.text


def test_names_that_are_no_znodes_are_refused() -> None:
    """A rule for a group `a/b` would be one for something else."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await node.znodes.load()
        for name in ("a/b", "..", "."):
            with pytest.raises(Exception, match="is no name of a znode"):
                await node.make(Acl(3, name, 3, "User:bob", "*", 3, 3))

    run(body)


def test_a_write_gives_up_where_others_always_come_first() -> None:
    """A request would never be answered."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await node.znodes.load()
        await node.make(BOB)
        with (
            mock.patch.object(node.session, "set", mock.AsyncMock(side_effect=BadVersionError())),
            pytest.raises(Exception, match="was changed by others"),
        ):
            await node.make(BOB._replace(principal="User:x"))

    run(body)


def test_notifications_name_resources_in_all_spellings() -> None:
    """A change that another release tells of would be overlooked."""
    literal, prefixed = AclResource(2, "a:b", 3), AclResource(5, "pre", 4)
    assert decode_change(encode_change(literal)) == literal == decode_change(b"Topic:a:b")
    assert decode_change(b"TransactionalId:x") == decode_change(b"TRANSACTIONAL_ID:x") == AclResource(5, "x", 3)
    assert decode_extended_change(encode_change(prefixed)) == prefixed
    for data in (b"", b"Topic", b"Topic:", b"Teapot:x", b"\xff", b"ANY:x"):
        with pytest.raises(ZnodeError):
            decode_change(data)
    for data in (b"{}", EXTENDED_CHANGE.replace(b"PREFIXED", b"LITERAL"), EXTENDED_CHANGE.replace(b"TOPIC", b"POT")):
        with pytest.raises(ZnodeError):
            decode_extended_change(data)
