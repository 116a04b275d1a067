"""A cluster's metadata from its ZooKeeper, which is only read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kazoo.client import KazooClient

from kbroker.cluster.zookeeper.acl_znodes import AclZnodes, id_of
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.session import ZooKeeperError, ensure_path
from kbroker.cluster.zookeeper.token_znodes import TokenZnodes
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.security_image import Acl, DelegationToken, ScramKey, SecurityImage
from kbroker.migration.zookeeper_metadata import from_zookeeper, read_cluster
from kbroker.security.scram import ScramMechanism, credential_of_password
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.zookeeper_server import zookeeper_server


@pytest.mark.compat
@pytest.mark.filterwarnings("ignore:No chroot path exists")
def test_a_chroot_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A mistyped address, or a look with --dry-run, would leave a znode in the ZooKeeper of others."""
    with zookeeper_server(tmp_path) as server:
        with pytest.raises(ZooKeeperError, match="or this chroot, has no Kafka"):
            asyncio.run(from_zookeeper(f"{server.address}/mistyped", ""))
        client = KazooClient(server.address)
        client.start()
        try:
            assert client.get_children("/") == ["zookeeper"]
        finally:
            client.stop()
            client.close()


class ReadOnly(FakeSession):
    """A session by which nothing may be changed."""

    async def create(self, *arguments: Any, **named: Any) -> NoReturn:
        raise AssertionError("a look made a znode")

    set = delete = multi = create


def test_acls_users_and_tokens_are_read() -> None:
    """A Kafka with ZooKeeper that is imported would be open to everybody, or closed to its users."""
    acl = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
    prefixed = Acl(3, "readers-", 4, "User:bob", "10.0.0.1", 2, 2)
    credential = credential_of_password(ScramMechanism.SCRAM_SHA_256, "secret")
    token = DelegationToken("t1", "User:alice", "User:alice", ("User:bob",), 1, 3, 2)
    ensemble = FakeEnsemble()

    async def scenario() -> None:
        session = FakeSession(ensemble)
        await session.open()
        for path in ("/cluster/id", "/config/users/x", "/brokers/topics/x"):
            await ensure_path(session, path.rpartition("/")[0])
        await session.create("/cluster/id", b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}')
        users = EntityConfigs(session)
        cache = MetadataCache(ClusterImage.of(""))
        users.publish_to(cache)
        await users.load()
        await users.alter_credentials({ScramKey("alice", 1): credential})
        acls, tokens = AclZnodes(session), TokenZnodes(session)
        await acls.load()
        await tokens.load()
        made = {id_of(each): each for each in (acl, prefixed)}
        await acls.alter(made, {})
        await tokens.alter({"t1": token})
        found = (await read_cluster(ReadOnly(ensemble), "MkU3OEVBNTcwNTJENDM2Qg")).security
        assert found == SecurityImage(made, {ScramKey("alice", 1): credential}, {"t1": token})

    asyncio.run(scenario())
