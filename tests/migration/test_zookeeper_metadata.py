"""A cluster's metadata from its ZooKeeper, which is only read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kbroker.cluster.zookeeper.session import ZooKeeperError
from kbroker.migration.zookeeper_metadata import from_zookeeper
from tests.zookeeper_server import zookeeper_server

pytestmark = pytest.mark.compat


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
