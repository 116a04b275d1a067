"""Connections under TLS of which the kernel encrypts what is sent: when it begins, new keys, ends, and what it refuses.

Also of `kbroker._fast.tls.kernel_tls`.  `test_connection.py` runs every promise of a connection with such a kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from kbroker.security.tls.kernel import SUITES, KernelTls, probe
from tests.network import socket_kinds
from tests.network.served_connection import ECHO, FILE, Harness, answer, frame, until
from tests.network.tls_kernel import KernelStandIn, standing_in
from tests.network.tls_wire import Wire, served

SIZE = 300_000


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[socket_kinds.SocketKind], None]:
    return lambda kind: monkeypatch.setattr(socket_kinds, "current", kind)


def kernel_count() -> int:
    listener = socket_kinds.current.listener
    assert listener is not None
    assert listener.shared is not None
    return listener.shared.kernel_count


def filled(harness: Harness, size: int = SIZE) -> bytes:
    content = os.urandom(size)
    harness.file.write(content)
    harness.file.flush()
    return content


def asks(number: int, size: int = SIZE) -> bytes:
    return frame(FILE, number, struct.pack(">qq", 0, size))


@pytest.mark.parametrize("answers_before", [0, 1, 40])
def test_the_kernel_takes_over_with_the_first_range_of_a_file(
    kernel: socket_kinds.SocketKind, use: Callable[[socket_kinds.SocketKind], None], answers_before: int
) -> None:
    """Records would be numbered wrongly behind tickets and answers, and the client could read nothing more."""
    use(kernel)

    async def main() -> None:
        async with served() as harness:
            content = filled(harness)
            reader, writer = await harness.connect()
            for number in range(answers_before):
                writer.write(frame(ECHO, number, b"x" * number * 1000))
                assert await answer(reader) == (number, b"x" * number * 1000)
            assert kernel_count() == 0
            for number in range(3):
                writer.write(asks(number) + frame(ECHO, number, b"y"))
                assert await answer(reader) == (number, b"<" + content + b">")
                assert await answer(reader) == (number, b"y")
            assert kernel_count() == 1
            writer.close()

    uvloop.run(main())


@pytest.mark.parametrize("suite", sorted(SUITES))
def test_every_suite_of_the_kernel_can_be_read(
    certificate: socket_kinds.Certificate, use: Callable[[socket_kinds.SocketKind], None], suite: bytes
) -> None:
    """Clients of one suite alone would read nothing."""

    async def main(kind: socket_kinds.SocketKind) -> None:
        async with served() as harness:
            content = filled(harness)
            reader, writer = await harness.connect()
            assert writer.get_extra_info("cipher")[0].encode() == suite
            writer.write(asks(1))
            assert await answer(reader) == (1, b"<" + content + b">")
            assert kernel_count() == 1
            writer.close()

    kernel = KernelTls(frozenset(SUITES), renews_keys=True)
    with standing_in(KernelStandIn()):
        kind = socket_kinds.tls(certificate, kernel=kernel)
        assert kind.listener is not None
        kind.listener.choose_suite(suite)
        use(kind)
        uvloop.run(main(kind))


@pytest.mark.parametrize("why", ["suite", "refused", "tls12"])
def test_what_the_kernel_does_not_take_goes_on_without_it(
    certificate: socket_kinds.Certificate, use: Callable[[socket_kinds.SocketKind], None], why: str
) -> None:
    """A consumer of an old client, or on a kernel that has run out of something, would be cut off."""

    async def main() -> None:
        async with served() as harness:
            content = filled(harness)
            reader, writer = await harness.connect()
            for number in range(3):
                writer.write(asks(number))
                assert await answer(reader) == (number, b"<" + content + b">")
            assert kernel_count() == 0
            writer.close()

    suites = frozenset() if why == "suite" else frozenset(SUITES)
    version = ssl.TLSVersion.TLSv1_2 if why == "tls12" else None
    with standing_in(KernelStandIn(refuses=errno.EINVAL if why == "refused" else 0)):
        use(socket_kinds.tls(certificate, version, kernel=KernelTls(suites, renews_keys=True)))
        uvloop.run(main())


def test_a_client_that_reads_slowly_gets_all(
    kernel: socket_kinds.SocketKind, use: Callable[[socket_kinds.SocketKind], None]
) -> None:
    """What the kernel has no room for would be lost, or sent twice."""
    use(kernel)

    async def main() -> None:
        async with served(send_threads=2) as harness:
            content = filled(harness, 3 << 20)
            clients = [await harness.connect() for _ in range(3)]
            for _, writer in clients:
                for number in range(3):
                    writer.write(asks(number, len(content)) + frame(ECHO, number, b"z" * 1000))
            for _ in range(50):
                await asyncio.sleep(0)
            for reader, writer in clients:
                for number in range(3):
                    assert await answer(reader) == (number, b"<" + content + b">")
                    assert await answer(reader) == (number, b"z" * 1000)
                writer.close()
            assert kernel_count() == 3

    uvloop.run(main())


def test_the_end_is_said_by_the_kernel(
    kernel: socket_kinds.SocketKind, use: Callable[[socket_kinds.SocketKind], None]
) -> None:
    """A client would take the end of the broker for somebody who cut the line."""
    use(kernel)

    async def main() -> None:
        async with served() as harness:
            content = filled(harness)
            wire = await Wire.connect(harness)
            wire.writer.write(wire.hello())
            wire.writer.write(await wire.finish())
            assert (await wire.ask(asks(1)))[4:] == b"<" + content + b">"
            assert kernel_count() == 1
            (connection,) = harness.listener.endpoint.connections
            connection.close("test")
            wire.incoming.write(await wire.rest())
            wire.incoming.write_eof()
            # A line that was cut raises SSLEOFError.
            assert wire.tls.read(100) == b""

    uvloop.run(main())


def renewals() -> int:
    """How often the system's kernel has taken new keys."""
    lines = Path("/proc/net/tls_stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("TlsTxRekeyOk")), 0)


async def read_until(stream: asyncio.StreamReader, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        more = await stream.read(65536)
        assert more, said
        said += more
    return said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no other client here asks for new keys")
@pytest.mark.parametrize("renews_keys", [True, False])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_client_asks_for_new_keys(
    certificate: socket_kinds.Certificate,
    use: Callable[[socket_kinds.SocketKind], None],
    renews_keys: bool,
    when: str,
) -> None:
    """Java's consumers do so after 137 GB: they would read nothing more, and nobody would know why."""

    async def main() -> None:
        async with served() as harness:
            filled(harness)
            ours, theirs = socket.socketpair()
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{harness.listener.port}", "-tls1_3"]
            command += ["-CAfile", certificate.chain, "-cert", certificate.chain, "-key", certificate.key]
            client = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                await read_until(reader, b"Verify return code: 0")
                if when == "behind":
                    writer.write(asks(7, 200_000) + frame(ECHO, 1, b"first-end"))
                    await read_until(reader, b"first-end")
                    assert kernel_count() == 1
                for number in range(3):
                    writer.write(b"K\n")
                    await read_until(reader, b"KEYUPDATE")
                    # The client asks with what it sends next.
                    writer.write(frame(ECHO, number, b"echo-%d" % number))
                    if when == "behind" and not renews_keys:
                        await until(lambda: not harness.listener.endpoint.connections)
                        assert harness.listener.closed["lost"] == 1
                        return
                    await read_until(reader, b"echo-%d" % number)
                    writer.write(asks(number, 200_000) + frame(ECHO, 1, b"again-%d" % number))
                    await read_until(reader, b"again-%d" % number)
                assert kernel_count() == (when == "behind")
                if is_real:
                    assert renewals() - before == (3 if when == "behind" else 0)
                else:
                    assert kernel.renewals == (3 if when == "behind" else 0)
            finally:
                client.kill()
                client.wait()
                writer.close()

    real = probe()
    is_real = isinstance(real, KernelTls) and real.renews_keys is renews_keys
    before = renewals() if is_real else 0
    kernel = KernelStandIn(renews_keys=renews_keys)
    with contextlib.nullcontext() if is_real else standing_in(kernel):
        use(socket_kinds.tls(certificate, kernel=KernelTls(frozenset(SUITES), renews_keys=renews_keys)))
        uvloop.run(main())
