"""SCRAM credentials and delegation tokens in ZooKeeper: what Kafka wrote is read, and what is written is Kafka's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import mock

import pytest

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.cluster_controller import ClusterController
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.scram_settings import credential_text, parse_credential
from kbroker.cluster.zookeeper.session import ensure_path, set_or_create
from kbroker.cluster.zookeeper.token_znodes import CHANGES, TOKENS, TokenZnodes, decode_token
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import encode_config
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.security_image import DelegationToken, ScramCredential, ScramKey
from kbroker.security.delegation_tokens import TokenCreation, TokenExpiry
from kbroker.security.scram import ScramMechanism, credential_of_password
from kbroker.security.scram_changes import ScramAlteration, ScramUpsertion
from tests.cluster.zookeeper.fake import FakeEnsemble, run
from tests.unbroken import UNBROKEN

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
CREDENTIAL = credential_of_password(SHA_256, "pw", salt=b"salt")
TOKEN = DelegationToken("WNO2-_", "User:b\u00f6b", "User:admin", ("User:a,b",), 1_700_000_000_000, 1_800_000_000_000, 5)
OF_KAFKA = (
    b'{"issueTimestamp":1700000000000,"renewers":["User%3Aa%2Cb"],"tokenRequester":"User%3Aadmin","tokenId":"WNO2-_",'
    b'"owner":"User%3Ab%C3%B6b","expiryTimestamp":5,"maxTimestamp":1800000000000,"version":3}'
)


class Node:
    """One broker's view."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.session = ensemble.session()
        self.cache = MetadataCache(ClusterImage.of("c"))
        self.configs = EntityConfigs(self.session)
        self.tokens = TokenZnodes(self.session)
        self.controller = ClusterController(
            1,
            self.session,
            self.cache,
            mock.Mock(),
            mock.Mock(),
            self.configs,
            mock.Mock(),
            UNBROKEN,
            None,
            None,
            self.tokens,
        )

    async def load(self) -> None:
        self.configs.publish_to(self.cache)
        self.tokens.publish_to(self.cache)
        await self.configs.load()
        await self.tokens.load()

    @property
    def scram(self) -> Mapping[ScramKey, ScramCredential]:
        return self.cache.image.security.scram

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)


def upsertion(user: str, mechanism: ScramMechanism) -> ScramAlteration:
    credential = ScramUpsertion.of(ScramKey(user, mechanism.value), 4096, b"salt", b"salted").credential
    return ScramAlteration({ScramKey(user, mechanism.value): credential})


def config_of(ensemble: FakeEnsemble, path: str) -> dict[str, str]:
    content = ensemble.content(paths.config(path))
    found: dict[str, str] = {} if content is None else json.loads(content)["config"]
    return found


def test_users_of_kafka_are_users_here() -> None:
    """Clients of a cluster that moves from Kafka to kbroker could not log in."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await ensure_path(node.session, "/config/users")
        settings = {"SCRAM-SHA-256": credential_text(CREDENTIAL), "producer_byte_rate": "10"}
        await set_or_create(node.session, "/config/users/a%20b", encode_config(settings))
        await set_or_create(node.session, "/config/users/bad", encode_config({"SCRAM-SHA-256": "salt=x"}))
        await node.load()
        assert node.scram == {ScramKey("a b", 1): CREDENTIAL}
        assert list(node.cache.image.quotas) == [(("user", "a b"),)]

    run(body)


def test_a_users_credentials_and_quotas_leave_each_other_alone() -> None:
    """A new password would lift a quota, or a new quota take a user's password away."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await node.load()
        await node.configs.write("users/sam", {"producer_byte_rate": "10"})
        for each in (upsertion("sam", SHA_256), upsertion("sam", SHA_512), upsertion("tom", SHA_256)):
            assert await node.controller.alter_security(each) == frozenset()
        found = config_of(ensemble, "users/sam")
        assert set(found) == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert parse_credential(found["SCRAM-SHA-256"]) == upsertion("sam", SHA_256).changes[ScramKey("sam", 1)]
        await node.controller.alter_security(ScramAlteration({ScramKey("sam", 1): None}))
        assert set(config_of(ensemble, "users/sam")) == {"producer_byte_rate", "SCRAM-SHA-512"}
        assert set(node.scram) == {ScramKey("sam", 2), ScramKey("tom", 1)}

    run(body)


def test_brokers_follow_users_and_tokens_of_each_other() -> None:
    """A user could log in at one broker alone, or one that was removed at all others."""

    async def body(ensemble: FakeEnsemble) -> None:
        first, second = Node(ensemble), Node(ensemble)
        for node in (first, second):
            await node.load()
        following = [asyncio.ensure_future(work) for work in (second.configs.run(), second.tokens.run())]
        await first.controller.alter_security(upsertion("sam", SHA_256))
        await first.controller.alter_security(TokenCreation(TOKEN))
        await second.until(lambda: bool(second.scram) and bool(second.cache.image.security.tokens))
        assert second.scram == first.scram
        assert second.cache.image.security.tokens == {TOKEN.token_id: TOKEN}
        await first.controller.alter_security(ScramAlteration({ScramKey("sam", 1): None}))
        expiry = TokenExpiry(TOKEN.token_id, TOKEN.owner, -1, 6)
        assert (await first.controller.alter_security(expiry))[0] == 0
        await second.until(lambda: not second.scram and not second.cache.image.security.tokens)
        assert ensemble.children_of(TOKENS) == []
        for task in following:
            task.cancel()

    run(body)


def test_users_and_tokens_that_changed_behind_a_lost_session_count_without_notifications() -> None:
    """A user who was removed could log in at a broker that was away meanwhile, for ever."""

    async def body(ensemble: FakeEnsemble) -> None:
        first, second = Node(ensemble), Node(ensemble)
        for node in (first, second):
            await node.load()
        following = [asyncio.ensure_future(work) for work in (second.configs.run(), second.tokens.run())]
        await first.controller.alter_security(upsertion("sam", SHA_256))
        await first.controller.alter_security(TokenCreation(TOKEN))
        await second.until(lambda: bool(second.scram) and bool(second.cache.image.security.tokens))
        second.session.drop()
        await first.controller.alter_security(ScramAlteration({ScramKey("sam", 1): None}))
        await first.controller.alter_security(upsertion("eve", SHA_256))
        assert (await first.controller.alter_security(TokenExpiry(TOKEN.token_id, TOKEN.owner, -1, 6)))[0] == 0
        # A tool has removed the whole znode.
        ensemble.remove(paths.config("users/sam"))
        for folder in (paths.CONFIG_CHANGES, CHANGES):
            for name in ensemble.children_of(folder):
                ensemble.remove(f"{folder}/{name}")
        second.session.resume()
        await second.until(lambda: not second.cache.image.security.tokens and ScramKey("sam", 1) not in second.scram)
        await second.until(lambda: second.scram == first.scram)
        for task in following:
            task.cancel()

    run(body)


def test_tokens_of_kafka_are_tokens_here_and_the_other_way_round() -> None:
    """Jobs would have to fetch new tokens, or nobody could renew theirs."""

    async def body(ensemble: FakeEnsemble) -> None:
        node = Node(ensemble)
        await ensure_path(node.session, TOKENS)
        await set_or_create(node.session, f"{TOKENS}/{TOKEN.token_id}", OF_KAFKA)
        await node.load()
        assert node.cache.image.security.tokens == {TOKEN.token_id: TOKEN}
        other = replace(TOKEN, token_id="other")
        await node.controller.alter_security(TokenCreation(other))
        written = ensemble.content(f"{TOKENS}/other") or b""
        assert json.loads(written) == {**json.loads(OF_KAFKA), "tokenId": "other"}
        (change,) = ensemble.children_of(CHANGES)
        assert change.startswith("token_change_") and ensemble.content(f"{CHANGES}/{change}") == b"other"
        again = Node(ensemble)
        await again.load()
        assert again.cache.image.security.tokens == node.cache.image.security.tokens

    run(body)


def test_a_token_of_an_older_kafka_has_its_owner_as_requester() -> None:
    """Tokens would be lost with an upgrade."""
    content = json.loads(OF_KAFKA)
    del content["tokenRequester"]
    content["version"] = 1
    assert decode_token(json.dumps(content).encode()) == replace(TOKEN, requester=TOKEN.owner)


@pytest.mark.parametrize(
    "change",
    [{"owner": "bob"}, {"owner": 1}, {"version": 4}, {"issueTimestamp": "1"}, {"renewers": {}}, {"renewers": ["a"]}],
)
def test_a_token_that_makes_no_sense_is_none(change: dict[str, object]) -> None:
    """The broker would end, or take somebody for the owner."""
    with pytest.raises(ZnodeError):
        decode_token(json.dumps({**json.loads(OF_KAFKA), **change}).encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=YQ==",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=0",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=x",
        "salt=!,stored_key=YQ==,server_key=YQ==,iterations=4096",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096,more=1",
    ],
)
def test_a_credential_that_makes_no_sense_is_none(text: str) -> None:
    """The broker would end, or let somebody in by half a credential."""
    with pytest.raises(ValueError, match=r"credential|iterations"):
        parse_credential(text)
