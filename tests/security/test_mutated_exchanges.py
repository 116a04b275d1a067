"""Logins that were tampered with at random: nobody is let in, nothing breaks, nothing is left behind.

The exchanges that are mutated are whole but for a wrong password, so none of them may come to an end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import struct
from pathlib import Path

import pytest
import uvloop

from kbroker.broker import Broker
from kbroker.security.sasl.exchange import SaslExchange
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.oauthbearer import OAuthBearerClient
from kbroker.security.sasl.scram_client import ScramClient
from kbroker.security.scram import ScramMechanism
from tests.security.bearer import Issuer
from tests.security.sasl_broker import ALL, PREFIX, PutUser, RawClient, sasl_broker

AT_ONCE = 32
MARK = 0x7E57_7E57
"""The correlation id of the request that nobody may get an answer to."""
SETTINGS = {
    **ALL,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"{PREFIX}.oauthbearer.sasl.jaas.config": "x.OAuthBearerLoginModule required;",
    "connection.failed.authentication.delay.ms": "0",
    "connections.max.reauth.ms": "3600000",
}


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def transcripts() -> list[list[bytes]]:
    """The frames of logins that fail at their end."""
    asker = RawClient(None, asyncio.StreamReader(), None)  # type: ignore[arg-type]
    scram = ScramClient(ScramMechanism.SCRAM_SHA_256, Login("sam", "wrong"), "nonce")
    answer = b"r=nonce2,s=AAAA,i=4096"
    proof = scram.evaluate(answer) or b""
    bearer = OAuthBearerClient(Issuer().token({})).first()
    versions = asker.frame("ApiVersions", 3, client_software_name="a", client_software_version="1")
    found = []
    for mechanism, tokens in (
        ("PLAIN", [b"\0alice\0wrong"]),
        ("SCRAM-SHA-256", [scram.first(), proof]),
        ("OAUTHBEARER", [bearer, b"\x01"]),
    ):
        for version in (0, 1):
            handshake = asker.frame("SaslHandshake", version, mechanism=mechanism)
            rest = [
                framed(token) if version == 0 else asker.frame("SaslAuthenticate", 2, auth_bytes=token)
                for token in tokens
            ]
            found.append([versions, handshake, *rest])
    return found


def mutated(frames: list[bytes], rng: random.Random) -> bytes:
    """The frames, in another order, cut off, repeated, or with other bytes."""
    frames = list(frames)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(frames))
        frame = bytearray(frames[place])
        match rng.randrange(8):
            case 0 if frame:
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            case 1 if frame:
                frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            case 2:
                del frame[rng.randrange(len(frame) + 1) :]
            case 3:
                at = rng.randrange(len(frame) + 1)
                frame[at:at] = rng.randbytes(rng.randint(1, 40))
            case 4:
                frames.insert(rng.randrange(len(frames) + 1), frames[place])
            case 5:
                rng.shuffle(frames)
            case 6:
                # Whole, but with another length.
                body = bytes(frame[4:])[: rng.randrange(len(frame) + 1)] + rng.randbytes(rng.randrange(20))
                frame = bytearray(framed(body))
            case _:
                frames.insert(place, framed(rng.randbytes(rng.randrange(60))))
        if place < len(frames):
            frames[place] = bytes(frame)
    return b"".join(frames)


async def attack(port: int, data: bytes, last: bytes) -> bytes:
    """All that is answered to those bytes and, behind them, to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data + last)
        writer.write_eof()
        return await reader.read(-1)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def attack_all(broker: Broker, count: int, seed: int) -> list[bytes]:
    """Those that got an answer to the last request."""
    rng, bases = random.Random(seed), transcripts()
    asker = RawClient(None, asyncio.StreamReader(), None)  # type: ignore[arg-type]
    asker._correlation = MARK - 1
    last = asker.frame("Metadata", 1, topics=None)
    port = broker.node.listeners.all[0].port
    let_in = []
    for _ in range(0, count, AT_ONCE):
        batch = [mutated(rng.choice(bases), rng) for _ in range(AT_ONCE)]
        answers = await asyncio.gather(*(attack(port, data, last) for data in batch))
        let_in += [data for data, answer in zip(batch, answers, strict=True) if struct.pack(">i", MARK) in answer]
    return let_in


@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_000)])])
def test_nobody_is_let_in_by_a_mutated_exchange(tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Somebody without a password could get in, end the broker, or have it run out of memory."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(Issuer().jwks())
    settings = {**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    # What others have left in this process is not to complain here.
    gc.collect()
    caplog.clear()

    async def main() -> None:
        async with sasl_broker(tmp_path, settings) as broker:
            await broker.services.controller.alter_security(PutUser("sam", "sam-pw"))
            assert await attack_all(broker, count, 1) == []
            listener = broker.node.listeners.all[0]
            while listener.endpoint.connections:
                await asyncio.sleep(0)
            assert listener.endpoint.pool.used_bytes == 0
            gc.collect()
            # Of this broker: those of others may be left in this process.
            servers = [each._server for each in broker.node.sasl._listeners.values()]
            exchanges = [each for each in gc.get_objects() if type(each) is SaslExchange]
            assert servers and [each for each in exchanges if each._server in servers] == []
            client = await RawClient.connect(broker)
            assert (await client.log_in()).error_code == 0, "and those who may still log in"

    uvloop.run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_exchanges_that_are_mutated_are_whole_but_for_the_password(tmp_path: Path) -> None:
    """The broker could refuse them for another reason, and the mutations would show nothing."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(Issuer().jwks())
    settings = {**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}

    async def main() -> None:
        async with sasl_broker(tmp_path, settings) as broker:
            for frames in transcripts():
                await attack(broker.node.listeners.all[0].port, b"".join(frames), b"")
            failed = broker.node.sasl.stats["SASL_PLAINTEXT"].failed
            assert failed == {"PLAIN": 2, "SCRAM-SHA-256": 2, "OAUTHBEARER": 2}

    uvloop.run(main())
