"""SASL over a broker: what clients are answered, when they are cut off, and what is let through before.

Also of `kbroker.storage.directories.kept_secret`.
"""

from __future__ import annotations

import asyncio
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.config import ConfigError
from kbroker.errors import ErrorCode
from kbroker.metadata.security_image import DelegationToken, ScramCredential, ScramKey
from kbroker.schemas import wire
from kbroker.security.delegation_tokens import TokenCreation, token_hmac, token_password
from kbroker.security.principal import Principal
from kbroker.security.sasl import credentials
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.scram_client import ScramClient
from kbroker.security.scram import ScramMechanism, credential_of_password
from kbroker.security.scram_changes import ScramAlteration
from tests.security.sasl_broker import ALL, PLAIN, PREFIX, PutUser, RawClient, sasl_broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SHORT_DELAY = {"connection.failed.authentication.delay.ms": "1"}


def test_nothing_but_authentication_is_served_before_it(tmp_path: Path) -> None:
    """Everybody could see and change everything."""

    async def main() -> None:
        async with sasl_broker(tmp_path, ALL) as broker:
            for version in (0, 3):
                client = await RawClient.connect(broker)
                names = {"client_software_name": "a", "client_software_version": "1"} if version == 3 else {}
                assert (await client.ask("ApiVersions", version, **names)).error_code == 0
                assert await client.ask("Metadata", 1, topics=None) is None
            client = await RawClient.connect(broker)
            assert await client.handshake("PLAIN") == 0
            assert await client.ask("Metadata", 1, topics=None) is None
            client = await RawClient.connect(broker)
            assert await client.ask("SaslAuthenticate", 2, auth_bytes=b"\0alice\0alice-pw") is None
            client = await RawClient.connect(broker)
            assert (await client.log_in()).error_code == 0
            assert (await client.ask("Metadata", 1, topics=None)).brokers

    uvloop.run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_logs_in_and_is_the_principal(tmp_path: Path, version: int) -> None:
    """Rights and quotas would be somebody else's."""

    async def main() -> None:
        async with sasl_broker(tmp_path, ALL) as broker:
            client = await RawClient.connect(broker)
            answer = await client.log_in(version=version)
            assert (answer.error_code, answer.auth_bytes) == (0, b"")
            assert client.session.principal == Principal("User", "alice")

    uvloop.run(main())


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_users_are_those_of_the_metadata(tmp_path: Path, mechanism: ScramMechanism) -> None:
    """Users that were added would not get in, or those that were removed would."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**ALL, **SHORT_DELAY}) as broker:
            for name, password, error in (("sam", "sam-pw", 0), ("sam", "x", 58), ("tom", "sam-pw", 58)):
                await broker.services.controller.alter_security(PutUser("sam", "sam-pw"))
                client = await RawClient.connect(broker)
                assert await client.handshake(mechanism.sasl_name) == 0
                login = ScramClient(mechanism, Login(name, password))
                proof = login.evaluate((await client.authenticate(login.first())).auth_bytes)
                answer = await client.authenticate(proof or b"")
                assert answer.error_code == error
                if error == 0:
                    login.evaluate(answer.auth_bytes)
                    assert login.complete
                    assert client.session.principal == Principal("User", "sam")
                else:
                    assert answer.error_message == (
                        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                        + mechanism.sasl_name
                    )
                    assert await client.token() is None

    uvloop.run(main())


def test_a_failure_is_answered_after_a_delay_and_the_connection_is_closed(tmp_path: Path) -> None:
    """Passwords could be tried at the speed of the network; a client would not learn why it is cut off."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**PLAIN, "connection.failed.authentication.delay.ms": "200"}) as broker:
            client, other = await RawClient.connect(broker), await RawClient.connect(broker)
            began = time.monotonic()
            assert await client.handshake("PLAIN") == 0
            failing = asyncio.ensure_future(client.authenticate(b"\0alice\0wrong"))
            assert (await other.log_in()).error_code == 0  # Others do not wait.
            # What comes behind it is not served.
            client.writer.write(client.frame("ApiVersions", 0))
            client._correlation -= 1
            answer = await failing
            assert time.monotonic() - began >= 0.2
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == "Authentication failed: Invalid username or password"
            assert await client.token() is None
            closed = broker.node.listeners.all[0].closed
            assert closed["authentication failed"] + closed["unauthenticated request"] == 1

    uvloop.run(main())


def test_an_unknown_mechanism_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    """A client's owner would not know what to set."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**ALL, **SHORT_DELAY}) as broker:
            client = await RawClient.connect(broker)
            answer = await client.ask("SaslHandshake", 1, mechanism="GSSAPI")
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
            assert await client.token() is None

    uvloop.run(main())


def test_clients_without_a_header_around_their_tokens_log_in(tmp_path: Path) -> None:
    """Clients of Kafka 0.10 could not connect."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**ALL, **SHORT_DELAY}) as broker:
            await broker.services.controller.alter_security(PutUser("sam", "sam-pw"))
            client = await RawClient.connect(broker)
            assert await client.handshake("PLAIN", version=0) == 0
            # A request in the same packet is served once the token is through.
            token = b"\0alice\0alice-pw"
            client.writer.write(len(token).to_bytes(4, "big") + token + client.frame("Metadata", 1, topics=None))
            assert await client.token() == b""
            assert (await client.answer("Metadata", 1)).brokers
            client = await RawClient.connect(broker)
            assert await client.handshake("SCRAM-SHA-512", version=0) == 0
            login = ScramClient(ScramMechanism.SCRAM_SHA_512, Login("sam", "sam-pw"))
            client.send_token(login.first())
            proof = login.evaluate(await client.token() or b"")
            client.send_token(proof or b"")
            login.evaluate(await client.token() or b"")
            assert login.complete
            assert (await client.ask("Metadata", 1, topics=None)).brokers
            for wrong in (b"\0alice\0wrong", b"", b"x"):
                client = await RawClient.connect(broker)
                assert await client.handshake("PLAIN", version=0) == 0
                client.send_token(wrong)
                client.writer.write(client.frame("Metadata", 1, topics=None))
                assert await client.token() is None, "the end of the connection is the answer"

    uvloop.run(main())


def test_a_frame_before_authentication_is_bounded(tmp_path: Path) -> None:
    """Anybody could have the broker hold 100 MB for each connection."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**PLAIN, f"{PREFIX}.sasl.server.max.receive.size": "1000"}) as broker:
            for prepare in (False, True):
                client = await RawClient.connect(broker)
                if prepare:
                    await client.handshake("PLAIN", version=0)
                client.writer.write((1001).to_bytes(4, "big"))
                assert await client.token() is None
            client = await RawClient.connect(broker)
            await client.log_in()
            names = [f"topic-{number}" for number in range(300)]
            answer = await client.ask("Metadata", 4, topics=[{"name": name} for name in names][:0])
            assert answer is not None

    uvloop.run(main())


def test_a_session_that_has_ended_may_only_be_renewed(tmp_path: Path) -> None:
    """Who was sent away would stay on an open connection."""

    async def main() -> None:
        settings = {**PLAIN, f"{PREFIX}.plain.connections.max.reauth.ms": "1", "connections.max.reauth.ms": "3600000"}
        async with sasl_broker(tmp_path, settings) as broker:
            client = await RawClient.connect(broker)
            assert (await client.log_in()).session_lifetime_ms == 1
            while not client.session.has_expired(time.monotonic() - 0.002):
                await asyncio.sleep(0)
            assert await client.ask("Metadata", 1, topics=None) is None
            assert broker.node.listeners.all[0].closed["session expired"] == 1
            client = await RawClient.connect(broker)
            await client.log_in()
            while not client.session.has_expired(time.monotonic() - 0.002):
                await asyncio.sleep(0)
            assert (await client.log_in()).error_code == 0
            assert broker.node.sasl.stats["SASL_PLAINTEXT"].succeeded_again == {"PLAIN": 1}
            assert broker.node.sasl.stats["SASL_PLAINTEXT"].expired_count == 1

    uvloop.run(main())


def test_a_renewal_leaves_the_requests_before_it_alone(tmp_path: Path) -> None:
    """A client at work would lose answers whenever it renews its session."""

    async def main() -> None:
        async with sasl_broker(tmp_path, {**PLAIN, "connections.max.reauth.ms": "3600000"}) as broker:
            client = await RawClient.connect(broker)
            assert (await client.log_in()).session_lifetime_ms == 3_600_000
            for _ in range(3):
                client.writer.write(client.frame("Metadata", 1, topics=None))
            client.writer.write(client.frame("SaslHandshake", 1, mechanism="PLAIN"))
            for number in range(3):
                client._correlation = 3 + number
                assert (await client.answer("Metadata", 1)).brokers
            client._correlation = 6
            assert (await client.answer("SaslHandshake", 1)).error_code == 0
            assert (await client.authenticate(b"\0alice\0alice-pw")).error_code == 0
            assert (await client.ask("Metadata", 1, topics=None)).brokers

    uvloop.run(main())


def test_a_listener_without_sasl_says_so(tmp_path: Path) -> None:
    """A client with a setting too many would hang."""

    async def main() -> None:
        listeners = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        async with sasl_broker(tmp_path, listeners) as broker:
            client = await RawClient.connect(broker)
            answer = await client.ask("SaslHandshake", 1, mechanism="PLAIN")
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            answer = await client.authenticate(b"\0alice\0alice-pw")
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert answer.error_message == "SaslAuthenticate request received after successful authentication"

    uvloop.run(main())


def test_each_listener_has_its_own_users_and_mechanisms(tmp_path: Path) -> None:
    """A user of one network would get in by another."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.3:0,OPEN://127.0.0.2:0",
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.out.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.in.plain.sasl.jaas.config": f'{module} user_in="in-pw";',
        "listener.name.out.plain.sasl.jaas.config": f'{module} user_out="out-pw";',
        **SHORT_DELAY,
    }

    async def main() -> None:
        async with sasl_broker(tmp_path, settings) as broker:
            client = await RawClient.connect(broker, 0)
            assert (await client.log_in("in")).error_code == 0
            client = await RawClient.connect(broker, 0)
            assert (await client.log_in("out")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            client = await RawClient.connect(broker, 0)
            assert await client.handshake("SCRAM-SHA-256") == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    uvloop.run(main())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, r"plain\.sasl\.jaas\.config is not set"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "Hidden"}, "is not set"),
        ({**PLAIN, f"{PREFIX}.plain.sasl.jaas.config": "hidden required password=hidden;"}, "is not PlainLoginModule"),
        ({**PLAIN, f"{PREFIX}.plain.sasl.jaas.config": "hidden required password=1hidden;"}, "Value not specified"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is none of"),
        ({**PLAIN, f"{PREFIX}.plain.sasl.server.callback.handler.class": "com.example.Ldap"}, "names a Java class"),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{PREFIX}.oauthbearer.sasl.jaas.config": "x.OAuthBearerLoginModule required;",
            },
            "without a signature",
        ),
    ],
)
def test_a_listener_that_could_not_authenticate_ends_the_start(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    """Clients would be let in without proof, or never; a password would be in the reason."""

    async def main() -> None:
        async with sasl_broker(tmp_path, settings):
            pass

    with pytest.raises((ValueError, ConfigError), match=reason) as caught:
        uvloop.run(main())
    assert "hidden" not in str(caught.value)


QUOTAS = {
    "the user": [("user", "alice")],
    "the user by this client id": [("user", "alice"), ("client-id", "test")],
    "every user": [("user", None)],
    "another user": [("user", "bob")],
    "the user by another client id": [("user", "alice"), ("client-id", "other")],
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas_are_of_the_user_who_logged_in(tmp_path: Path, name: str) -> None:
    """A user could use as much as it likes, or would pay for what another one uses."""
    response = wire.AlterClientQuotasRequest
    entity = [response.EntityData(entity_type=kind, entity_name=who) for kind, who in QUOTAS[name]]
    ops = [response.OpData(key="controller_mutation_rate", value=0.001)]
    topic = wire.CreateTopicsRequest.CreatableTopic

    async def main() -> None:
        async with sasl_broker(tmp_path, PLAIN) as broker:
            client = await RawClient.connect(broker)
            await client.log_in("alice")
            entries = [response.EntryData(entity=entity, ops=ops)]
            assert (await client.ask("AlterClientQuotas", 1, entries=entries)).entries[0].error_code == 0
            codes = []
            for number in range(2):
                # A connection that has used too much waits; the user's next one does not.
                client = await RawClient.connect(broker)
                await client.log_in("alice")
                topics = [topic(name=f"t{number}", num_partitions=9, replication_factor=1)]
                answer = await client.ask("CreateTopics", 6, topics=topics, timeout_ms=9_000)
                codes.append(answer.topics[0].error_code)
            limited = not name.startswith("another") and not name.endswith("another client id")
            assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED if limited else 0]

    uvloop.run(main())


def test_a_user_who_was_removed_stays_until_its_session_ends(tmp_path: Path) -> None:
    """Who was removed would be in for ever, or a client be cut off amid its requests, as by Kafka it is not."""
    key = ScramKey("sam", ScramMechanism.SCRAM_SHA_256)

    async def main() -> None:
        async with sasl_broker(tmp_path, {**ALL, **SHORT_DELAY, "connections.max.reauth.ms": "3600000"}) as broker:
            await broker.services.controller.alter_security(PutUser("sam", "sam-pw"))
            client = await RawClient.connect(broker)

            async def log_in() -> int:
                assert await client.handshake("SCRAM-SHA-256") == 0
                login = ScramClient(ScramMechanism.SCRAM_SHA_256, Login("sam", "sam-pw"))
                proof = login.evaluate((await client.authenticate(login.first())).auth_bytes)
                return int((await client.authenticate(proof or b"")).error_code)

            assert await log_in() == 0
            removed = await broker.services.controller.alter_security(ScramAlteration({key: None}))
            assert removed == frozenset()
            assert (await client.ask("Metadata", 1, topics=None)).brokers
            assert await log_in() == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.token() is None

    uvloop.run(main())


def test_a_session_ends_with_its_token_and_expired_tokens_are_dropped(tmp_path: Path) -> None:
    """A job would keep what it was lent for a while."""
    settings = {**ALL, **SHORT_DELAY, "delegation.token.secret.key": "s"}

    async def main() -> None:
        async with sasl_broker(tmp_path, settings) as broker:
            now_ms = broker.clock.now_ms()
            token = DelegationToken("id", "User:alice", "User:alice", (), now_ms, now_ms + 60_000, now_ms + 60_000)
            group = replace(token, token_id="of a group", owner="Group:alice")
            for each in (token, group, replace(token, token_id="old", expires_ms=now_ms - 1)):
                await broker.services.controller.alter_security(TokenCreation(each))
            codes = []
            for name in ("id", "old", "of a group"):
                client = await RawClient.connect(broker)
                assert await client.handshake("SCRAM-SHA-512") == 0
                password = token_password(token_hmac(b"s", name))
                login = ScramClient(ScramMechanism.SCRAM_SHA_512, Login(name, password, by_token=True))
                proof = login.evaluate((await client.authenticate(login.first())).auth_bytes)
                answer = await client.authenticate(proof or b"")
                codes.append(answer.error_code)
                if not answer.error_code:
                    assert 0 < answer.session_lifetime_ms <= 60_000
                    assert client.session.by_token and client.session.principal == Principal("User", "alice")
            assert codes == [0, ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED]
            await broker._drop_expired_tokens()
            assert set(broker.cache.image.security.tokens) == {"id", "of a group"}

    uvloop.run(main())


def test_the_loop_does_not_wait_for_a_tokens_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients would wait for milliseconds with the first login by each token."""
    threads: list[int] = []

    def worked_out(*arguments: Any) -> ScramCredential:
        threads.append(threading.get_ident())
        return credential_of_password(*arguments)

    monkeypatch.setattr(credentials, "credential_of_password", worked_out)

    async def main() -> None:
        async with sasl_broker(tmp_path, {**ALL, "delegation.token.secret.key": "s"}) as broker:
            now_ms = broker.clock.now_ms()
            token = DelegationToken("id", "User:alice", "User:alice", (), now_ms, now_ms + 60_000, now_ms + 60_000)
            await broker.services.controller.alter_security(TokenCreation(token))
            for _ in range(2):
                client = await RawClient.connect(broker)
                assert await client.handshake("SCRAM-SHA-512") == 0
                password = token_password(token_hmac(b"s", "id"))
                login = ScramClient(ScramMechanism.SCRAM_SHA_512, Login("id", password, by_token=True))
                proof = login.evaluate((await client.authenticate(login.first())).auth_bytes)
                assert (await client.authenticate(proof or b"")).error_code == 0
            assert len(threads) == 1
            assert threads[0] != threading.get_ident()

    uvloop.run(main())


def salts(folder: Path, settings: Mapping[str, str]) -> tuple[bytes, ...]:
    """The salt that each broker in turn, over the same directories, gives for a user that there is not."""
    found = []

    async def main() -> None:
        async with sasl_broker(folder, settings) as broker:
            client = await RawClient.connect(broker)
            assert await client.handshake("SCRAM-SHA-256") == 0
            login = ScramClient(ScramMechanism.SCRAM_SHA_256, Login("nobody", "x"))
            answer = await client.authenticate(login.first())
            found.append(answer.auth_bytes.split(b",")[1])

    for _ in range(2):
        uvloop.run(main())
    return tuple(found)


def test_the_salt_of_a_user_that_there_is_not_outlives_a_restart(tmp_path: Path) -> None:
    """Whoever asks before and behind a restart would know which users there are: theirs do not change."""
    first, second = salts(tmp_path / "a", ALL)
    assert first == second
    kept = tmp_path / "a" / "logs" / "kbroker-secret"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(kept.read_bytes()) == 32
    kept.write_bytes(b"short")
    assert salts(tmp_path / "a", ALL)[0] != first
    # What all brokers of a cluster have gives all of them the same salts.
    common = {**ALL, "delegation.token.secret.key": "s"}
    assert salts(tmp_path / "b", common) == salts(tmp_path / "c", common)
    assert not (tmp_path / "b" / "logs" / "kbroker-secret").exists()
