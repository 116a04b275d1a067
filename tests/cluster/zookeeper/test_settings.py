"""Settings that would join a broker to no cluster, to the wrong one, or with an address that others cannot use."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from kbroker.assembly.membership.settings import membership_settings
from kbroker.broker import Broker
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.kazoo_session import KazooSession
from kbroker.cluster.zookeeper.session import ConnectionLossError
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings, ZooKeeperSettingsError
from kbroker.config import BrokerConfig, ConfigError, log_config
from kbroker.metadata.image import BrokerImage, Endpoint
from tests.cluster.zookeeper.fake import FakeEnsemble
from tests.cluster.zookeeper.membered import member_over, run, started


def config(**settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig.from_mapping({"zookeeper.connect": "zk1:2181/kafka", "metrics.listener": "none", **given})


@pytest.mark.parametrize(
    ("connect", "server"),
    [
        ("zk1:port/kafka", "zk1:port"),
        ("/kafka", ""),
        ("zk1:2181,,zk2:2181", ""),
        ("zk1:2181,zk2:99999/kafka", "zk2:99999"),
        ("zk1:2181 zk2:2181", "zk1:2181 zk2:2181"),
        ("::1:2181", "::1:2181"),
    ],
)
def test_what_is_no_server_is_named_with_its_setting(connect: str, server: str) -> None:
    """The start would end with an error of urllib's, or wait for a name that is none."""
    with pytest.raises(ZooKeeperSettingsError) as caught:
        ZooKeeperSettings.of(config(zookeeper_connect=connect))
    assert f"zookeeper.connect: {server!r} of {connect!r} is not host:port" in str(caught.value)


@pytest.mark.parametrize("connect", ["zk1", "zk1:2181", " zk1:2181, zk2:2181/a/b/", "[::1]:2181/kafka", "127.0.0.1/k"])
def test_servers_with_and_without_ports_and_a_path_are_taken(connect: str) -> None:
    """A setting that Kafka takes would stop the broker."""
    found = ZooKeeperSettings.of(config(zookeeper_connect=connect))
    assert found is not None
    assert found.connect == connect.strip().rstrip("/")
    assert all(host and ":" not in host.replace("::1", "") and port > 0 for host, port in found.servers)


def test_a_path_behind_each_server_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka takes all that follows the first slash for the path: the broker would found a cluster of its own."""
    ZooKeeperSettings.of(config(zookeeper_connect="zk1:2181/kafka,zk2:2181/kafka"))
    assert "all of /kafka,zk2:2181/kafka is the path, and zk1:2181 the only servers" in caplog.text


def test_a_server_that_nothing_knows_is_named() -> None:
    """Somebody would look for a ZooKeeper that is down, where a name is misspelt."""

    async def body() -> None:
        settings = ZooKeeperSettings("zk.invalid:2181,127.0.0.1:1", 2_000, 200)
        session = KazooSession(settings, asyncio.get_running_loop())
        with pytest.raises(ConnectionLossError, match=r"\(zk\.invalid: there is no such host\)"):
            await session.open()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "listeners: PLAINTEXT://0.0.0.0:9092 is every interface, and nothing that others could connect to",
        ),
        (
            {"listeners": "PLAINTEXT://[::]:9092"},
            "listeners: PLAINTEXT://[::]:9092 is every interface, and nothing that others could connect to",
        ),
        (
            {"inter_broker_listener_name": "INSIDE"},
            "Listener with name INSIDE defined in inter.broker.listener.name not found",
        ),
        (
            {
                "inter_broker_listener_name": "INSIDE",
                "listener_security_protocol_map": "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are PLAINTEXT",
        ),
    ],
)
def test_a_broker_that_others_could_not_reach_does_not_start(settings: dict[str, str], words: str) -> None:
    """Others would look for it on their own machines, or it would be a member that no controller can reach."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises((ValueError, ConfigError), match="listener") as caught:
            Broker(config(**settings), loop)
        assert words in str(caught.value)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("protocol", "formats", "needed"),
    [
        ("0.8.2", {}, "0.11.0"),
        ("0.10.2-IV0", {"log_message_format_version": "0.11.0"}, "0.11.0"),
        ("0.9.0", {"log_message_format_version": "0.10.0"}, "0.10.0"),
        ("0.9.0", {"log_message_format_version": "0.8.2"}, ""),
        ("0.10.0", {"log_message_format_version": "0.10.2"}, ""),
        ("0.11.0", {}, ""),
        ("3.9", {"log_message_format_version": "0.9.0"}, ""),
    ],
)
def test_a_message_format_that_the_cluster_does_not_speak_does_not_start(
    protocol: str, formats: dict[str, str], needed: str
) -> None:
    """Followers would get records that are converted for their version of Fetch, and store something else than their
    leader: without headers, times and producers.  The words and pairs are Kafka 3.9.1's."""
    settings = config(inter_broker_protocol_version=protocol, **formats)
    if not needed:
        membership_settings(settings)
        return
    with pytest.raises(ValueError, match="can only be used") as caught:
        membership_settings(settings)
    assert str(caught.value).startswith(
        f"log.message.format.version {formats.get('log_message_format_version', '3.0-IV1')} can only be used when "
        f"inter.broker.protocol.version is set to version {needed} or higher"
    )


def test_a_topics_format_that_the_cluster_does_not_speak_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """One topic's setting would do what is refused for all."""
    formats = {"inter_broker_protocol_version": "0.10.2", "log_message_format_version": "0.9.0"}
    for wanted, magic in (("0.10.2", 1), ("2.8", 0), ("0.8.2", 0)):
        caplog.clear()
        assert log_config(config(**formats), {"message.format.version": wanted}).message_magic == magic
        assert ("message.format.version 2.8 of a topic is ignored" in caplog.text) is (wanted == "2.8")
    alone = BrokerConfig.from_mapping({"log.dirs": "/", "inter.broker.protocol.version": "0.10.2"})
    assert log_config(alone, {"message.format.version": "2.8"}).message_magic == 2


def test_every_interface_is_fine_with_an_advertised_name() -> None:
    """Containers would have no way to be members."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        names = {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised_listeners": "PLAINTEXT://broker1:9092"}
        broker = Broker(config(**names), loop)
        assert not broker.membership.keeps_metadata

    asyncio.run(body())


def test_a_port_that_the_system_chose_is_registered(tmp_path: Path) -> None:
    """Others would be told of port 0."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        broker = await started(ensemble, tmp_path, listeners="PLAINTEXT://127.0.0.1:0")
        found = json.loads(ensemble.content(paths.broker(1)) or b"")
        assert found["port"] == broker.node.listeners.all[0].port > 0
        assert found["endpoints"] == [f"PLAINTEXT://127.0.0.1:{found['port']}"]
        await broker.stop()

    run(body())


@pytest.mark.parametrize(("name", "is_warned_of"), [("localhost", True), ("broker1.example", False)])
def test_a_listener_without_a_host_has_the_machines_name(
    name: str, is_warned_of: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine without a name would tell all others to look on their own."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        member = member_over(ensemble.session(), config(broker_id="1"))
        await member.open(None, None)
        await member.register(BrokerImage(1, {"PLAINTEXT": Endpoint("", 9092)}))
        assert json.loads(ensemble.content(paths.broker(1)) or b"")["host"] == name
        await member.close()

    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    asyncio.run(body())
    assert ("this machine knows itself as localhost only" in caplog.text) is is_warned_of
