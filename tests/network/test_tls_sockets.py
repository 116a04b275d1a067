"""Handshakes and ends under TLS: split, truncated, oversized, slow, hostile; what a thread does beside the loop.

Also of `kbroker._fast.tls.tls_socket`, `kbroker._fast.tls.tls_shared`, `kbroker._fast.tls.tls_stream`,
`kbroker._fast.tls.tls_library`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import ssl
import struct
import time
from collections.abc import Iterator

import pytest
import uvloop
from OpenSSL import SSL

from tests.extensions.kernel_stand_in import stand_in
from tests.network import socket_kinds
from tests.network.served_connection import ECHO, FILE, LATER, answer, frame, until
from tests.network.tls_wire import Wire, chosen_kind, served

HANDSHAKE, ALERT = 22, 21
SECONDS = 90


@pytest.fixture(autouse=True, params=["tls", "tls12"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket_kinds.SocketKind]:
    yield from chosen_kind(request, monkeypatch)


def refusals() -> list[tuple[str, str]]:
    assert socket_kinds.current.listener is not None
    return socket_kinds.current.listener.refusals


def test_a_handshake_may_come_byte_by_byte() -> None:
    """A client behind a network that splits packets would not get in."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            for byte in wire.hello():
                wire.writer.write(bytes([byte]))
                await wire.writer.drain()
                await asyncio.sleep(0)
            for byte in await wire.finish():
                wire.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await wire.ask(frame(ECHO, 1, b"x" * 100)))[4:] == b"x" * 100

    uvloop.run(main())


@pytest.mark.parametrize("rest", [1, 4, 7])
def test_a_handshake_may_be_cut_anywhere(rest: int) -> None:
    """What follows a record that was cut would be waited for in vain, until the deadline."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            last = await wire.finish()
            first = 5 + int.from_bytes(last[3:5], "big")
            wire.writer.write(last[: first + rest])
            for byte in last[first + rest :]:
                # Turns of the loop, in which the broker takes what is there.
                for _ in range(5):
                    await asyncio.sleep(0)
                wire.writer.write(bytes([byte]))
            assert (await wire.ask(frame(ECHO, 1, b"x")))[4:] == b"x"

    uvloop.run(main())


class NarrowSocket:
    """Takes a few bytes at a time, and nothing every other time: a socket whose client is slow to read."""

    def __init__(self) -> None:
        self.is_full = False

    def takes(self, _fd: int) -> bool:
        return True

    def send(self, fd: int, _kind: int, data: bytes) -> int:
        self.is_full = not self.is_full
        return -errno.EAGAIN if self.is_full else os.write(fd, data[:200])


def test_a_handshake_waits_for_room_in_the_socket() -> None:
    """A client whose broker has a long chain of certificates and a small send buffer would never get in."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            stand_in(NarrowSocket())
            try:
                wire.writer.write(wire.hello())
                wire.writer.write(await wire.finish())
                assert (await wire.ask(frame(ECHO, 1, b"x" * 100)))[4:] == b"x" * 100
            finally:
                stand_in(None)
            assert refusals() == []

    uvloop.run(main())


def test_requests_may_come_with_the_end_of_the_handshake() -> None:
    """A client that sends at once would never be answered: its requests lie behind what the handshake took."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            last = await wire.finish()
            body = os.urandom(300_000)
            wire.tls.write(frame(ECHO, 1, body))
            wire.writer.write(last + wire.outgoing.read())
            assert (await wire.read(8 + len(body)))[8:] == body

    uvloop.run(main())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_handshake_that_breaks_off_ends_the_connection(share: float) -> None:
    """Connections of clients that went away would stay for ever."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            hello = wire.hello()
            wire.writer.write(hello[: int(len(hello) * share)])
            wire.writer.write_eof()
            assert await wire.rest() == b""
            await until(lambda: not harness.listener.endpoint.connections)
            assert [kind for kind, _ in refusals()] == ["ended"]

    uvloop.run(main())


def test_a_handshake_has_a_deadline(kind: socket_kinds.SocketKind) -> None:
    """Clients that say nothing could take all connections."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello()[:50])
            await until(lambda: harness.listener.endpoint.connections)
            (connection,) = harness.listener.endpoint.connections
            connection.socket._too_slow()
            assert await wire.rest() == b""
            assert [kind for kind, _ in refusals()] == ["slow"]

    uvloop.run(main())


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (frame(ECHO, 1, b"x"), {"plaintext"}),
        (b"GET / HTTP/1.1\r\n\r\n", {"plaintext"}),
        (b"\x16\x03\x01\x00\x02\x01\x00", {"failed", "ended"}),
        (b"\x16\x03\x01\xff\xff" + bytes(70_000), {"failed"}),
        (b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380) + bytes(200_000), {"failed", "oversized"}),
        ((b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + bytes(16_380)) * 10, {"failed", "oversized"}),
    ],
)
def test_what_is_no_handshake_is_not_answered(data: bytes, kinds: set[str]) -> None:
    """A stranger could have the broker hold memory, or get something of it."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(data)
            if len(data) < 10:
                wire.writer.write_eof()
            said = await wire.rest()
            assert said[:1] in (b"", bytes([ALERT]))
            assert len(said) <= 7
            await until(lambda: not harness.listener.endpoint.connections)
            assert {kind for kind, _ in refusals()} <= kinds
            assert len(refusals()) == 1

    uvloop.run(main())


def test_a_client_that_the_listener_refuses_is_served_nothing(kind: socket_kinds.SocketKind) -> None:
    """A client without a principal would be served as if it had one."""

    async def main() -> None:
        assert kind.listener is not None
        kind.listener.verdict = "no rule applies"
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            last = await wire.finish()
            wire.tls.write(frame(ECHO, 1, b"secret"))
            wire.writer.write(last + wire.outgoing.read())
            wire.incoming.write(await wire.rest())
            assert wire.tls.read(100) == b""
            await until(lambda: not harness.listener.endpoint.connections)
            assert refusals() == [("refused", "no rule applies")]
            assert harness.listener.endpoint.stats.total() == 0

    uvloop.run(main())


@pytest.mark.parametrize("ends_stream", [False, True])
@pytest.mark.parametrize("size", [1000, 60_000])
def test_a_client_may_end_its_side_and_read_on(size: int, ends_stream: bool) -> None:
    """The answers to what it sent before would be lost."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            wire.writer.write(await wire.finish())
            for number in range(20):
                wire.tls.write(frame(ECHO, number, b"x" * size))
            with pytest.raises(ssl.SSLWantReadError):
                wire.tls.unwrap()
            wire.writer.write(wire.outgoing.read())
            if ends_stream:
                wire.writer.write_eof()
            data = b""
            while chunk := await wire.reader.read(65536):
                wire.incoming.write(chunk)
            while True:
                try:
                    chunk = wire.tls.read(65536)
                except (ssl.SSLZeroReturnError, ssl.SSLWantReadError):
                    break
                if not chunk:
                    break
                data += chunk
            assert [struct.unpack_from(">i", data, 4 + (8 + size) * number)[0] for number in range(20)] == list(
                range(20)
            )

    uvloop.run(main())


def test_an_end_that_is_said_twice_does_not_cost_the_answer() -> None:
    """A client that ends its session and then its stream would lose the answer that is not ready yet."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            wire.writer.write(await wire.finish())
            wire.tls.write(frame(LATER, 1, b"late"))
            with pytest.raises(ssl.SSLWantReadError):
                wire.tls.unwrap()
            wire.writer.write(wire.outgoing.read())
            await until(lambda: harness.later)
            (connection,) = harness.listener.endpoint.connections
            await until(lambda: connection.ended)
            wire.writer.write_eof()
            for _ in range(200):
                await asyncio.sleep(0)
            pending, body = harness.later.pop()
            pending.answer(body)
            said = await wire.rest()
            wire.incoming.write(said)
            assert wire.tls.read(100)[8:] == b"late"

    uvloop.run(main())


def test_a_failure_behind_a_handshake_is_one_connections_own(kind: socket_kinds.SocketKind) -> None:
    """The other clients whose handshakes were made at the same moment would hear nothing any more."""

    async def main() -> None:
        assert kind.listener is not None
        async with served() as harness:
            failures = iter([True, False])

            def shaken(connection: object, socket: object) -> None:
                if next(failures, False):
                    raise RuntimeError("no such thing")

            kind.listener.shaken = shaken  # type: ignore[assignment]
            try:
                clients = await asyncio.gather(*(harness.connect() for _ in range(5)), return_exceptions=True)
                served_clients = [each for each in clients if not isinstance(each, BaseException)]
                answers = 0
                for reader, writer in served_clients:
                    writer.write(frame(ECHO, 1, b"x"))
                    try:
                        assert await answer(reader) == (1, b"x")
                        answers += 1
                    except (asyncio.IncompleteReadError, ConnectionResetError):
                        pass
                    writer.close()
                assert answers == 4
            finally:
                del kind.listener.shaken

    uvloop.run(main())


def test_a_change_of_a_record_ends_the_connection() -> None:
    """Somebody between client and broker could change requests."""

    async def main() -> None:
        async with served() as harness:
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            wire.writer.write(await wire.finish())
            await wire.ask(frame(ECHO, 1, b"x"))
            wire.tls.write(frame(ECHO, 2, b"y" * 100))
            changed = bytearray(wire.outgoing.read())
            changed[50] ^= 1
            wire.writer.write(bytes(changed))
            await until(lambda: not harness.listener.endpoint.connections)
            assert harness.listener.closed["lost"] == 1

    uvloop.run(main())


def test_sessions_are_not_negotiated_anew(certificate: socket_kinds.Certificate) -> None:
    """A client could have the broker work for it without end, or change who it is amid its requests."""

    async def main() -> None:
        async with served() as harness:
            context = SSL.Context(SSL.TLS_CLIENT_METHOD)
            context.set_max_proto_version(SSL.TLS1_2_VERSION)
            context.use_privatekey_file(certificate.key)
            context.use_certificate_file(certificate.chain)
            client = SSL.Connection(context)
            client.set_connect_state()
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.listener.port)

            async def exchange() -> None:
                try:
                    writer.write(client.bio_read(65536))
                except SSL.WantReadError:
                    data = await reader.read(65536)
                    assert data
                    client.bio_write(data)

            async def shake_hands() -> None:
                while True:
                    try:
                        return client.do_handshake()
                    except SSL.WantReadError:
                        await exchange()

            await shake_hands()
            assert client.renegotiate()
            with pytest.raises((SSL.Error, AssertionError)):
                await shake_hands()
            writer.close()

    uvloop.run(main())


def test_a_thread_sends_large_ranges_while_requests_come() -> None:
    """What a thread encrypts and what the loop decrypts of the same session would spoil each other."""

    async def main() -> None:
        async with served(send_threads=2, buffer_bytes=1 << 20) as harness:
            content = os.urandom(3 << 20)
            harness.file.write(content)
            harness.file.flush()
            spread = [random.Random(number) for number in range(4)]

            async def client(drawn: random.Random) -> None:
                reader, writer = await harness.connect()
                for number in range(25):
                    position, size = drawn.randrange(1 << 20), drawn.randrange(100_000, 2 << 20)
                    writer.write(frame(FILE, number, struct.pack(">qq", position, size)))
                    writer.write(b"".join(frame(ECHO, number, bytes(60_000)) for _ in range(3)))
                    got = await answer(reader)
                    assert got == (number, b"<" + content[position : position + size] + b">")
                    for _ in range(3):
                        assert await answer(reader) == (number, bytes(60_000))
                writer.close()

            deadline = time.monotonic() + SECONDS
            while not harness.listener.endpoint.send_threads.lent_count:
                assert time.monotonic() < deadline
                await asyncio.gather(*map(client, spread))

    uvloop.run(main())


def test_a_crowd_of_handshakes_is_let_in() -> None:
    """Clients that come back together after a restart would wait for a thread that does not come."""

    async def main() -> None:
        async with served() as harness:
            harness.listener._limits.change(1000, 1000, {})
            clients = await asyncio.gather(*(harness.connect() for _ in range(150)))
            for number, (_, writer) in enumerate(clients):
                writer.write(frame(ECHO, number, b"x"))
            for number, (reader, writer) in enumerate(clients):
                assert await answer(reader) == (number, b"x")
                writer.close()

    uvloop.run(main())
