"""Options of client sockets: what a slow consumer holds of the kernel's memory, and who goes without pacing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
from contextlib import closing

import pytest
import uvloop

from kbroker.config import BrokerConfig, ConfigError
from kbroker.network.socket_options import SocketOptions, congestion_control, is_same_host
from tests.network.served_connection import FILE, Harness, answer, frame, running, until

MB = 1 << 20
SIOCOUTQNSD = 0x894B
LOWAT = 131_072
# A segment of loopback is 64 KB, and the last of a call may overshoot the bound.
SEGMENTS = 2 * 65_536


def unsent_bytes(harness: Harness) -> int:
    """Bytes in the socket of the only connection that the kernel has not begun to send."""
    (connection,) = harness.listener.endpoint.connections
    (size,) = struct.unpack("i", fcntl.ioctl(connection.socket.raw.fileno(), SIOCOUTQNSD, bytes(4)))
    return int(size)


async def slow_client(harness: Harness) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client with a small receive buffer, so that little is on its way, which does not read yet."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", harness.listener.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=16 * MB)
    writer.transport.pause_reading()
    return reader, writer


@pytest.mark.parametrize("send_threads", [0, 2])
def test_a_slow_consumer_holds_no_more_unsent_bytes_in_the_kernel_than_the_bound(send_threads: int) -> None:
    """10,000 stuck consumers would hold 4 MB each of the kernel's memory."""

    async def main() -> None:
        options = SocketOptions(128, notsent_lowat=LOWAT)
        async with running(options=options, send_threads=send_threads) as harness:
            content = os.urandom(8 * MB)
            harness.file.write(content)
            harness.file.flush()
            reader, writer = await slow_client(harness)
            for number in range(3):
                writer.write(frame(FILE, number, struct.pack(">qq", 0, len(content))))
            (connection,) = await connections(harness)
            await until(lambda: connection.queued_bytes and not connection.serving)
            assert 0 < unsent_bytes(harness) <= LOWAT + SEGMENTS
            writer.transport.resume_reading()
            for number in range(3):
                assert await answer(reader) == (number, b"<" + content + b">")
            writer.close()

    uvloop.run(main())


async def connections(harness: Harness) -> list[object]:
    await until(lambda: harness.listener.endpoint.connections)
    return list(harness.listener.endpoint.connections)


def test_the_bound_of_unsent_bytes_is_there_by_default_and_never_stalls_a_segment() -> None:
    """An answer would wait 200 ms for the rest of a segment that the bound does not let in."""
    assert BrokerConfig.from_mapping({}).get("socket.tcp.notsent.lowat") == 524_288
    with pytest.raises(ConfigError, match=r"socket\.tcp\.notsent\.lowat"):
        BrokerConfig.from_mapping({"socket.tcp.notsent.lowat": "65536"})


def with_bbr(sock: socket.socket) -> None:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    except OSError:
        pytest.skip("this kernel has no bbr")


def test_a_connection_from_the_same_host_is_not_paced_where_bbr_is_the_systems_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers beside the broker would get half of what they can take, at twice the CPU."""

    async def main() -> None:
        async with running(options=SocketOptions(128)) as harness:
            _reader, writer = await harness.connect()
            (connection,) = await connections(harness)
            assert congestion_control(connection.socket.raw) == "reno"
            writer.close()

    monkeypatch.setattr(SocketOptions, "apply", lambda self, sock: with_bbr(sock))
    uvloop.run(main())


def test_an_operators_congestion_control_holds_for_connections_from_the_same_host_too() -> None:
    """`socket.tcp.congestion` would be ignored on the very connections that are easiest to look at."""
    with closing(socket.socket()) as probe:
        with_bbr(probe)

    async def main() -> None:
        async with running(options=SocketOptions(128, tcp_congestion="bbr")) as harness:
            _reader, writer = await harness.connect()
            (connection,) = await connections(harness)
            assert congestion_control(connection.socket.raw) == "bbr"
            writer.close()

    uvloop.run(main())


def test_other_choices_of_the_system_are_left_alone() -> None:
    """An operator would find reno where the kernel was set up for something else."""
    with closing(socket.socket()) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        assert not SocketOptions(128).paces_local(listening)


@pytest.mark.parametrize(
    ("peer", "local", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.5", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("::1", "::1", True),
        ("192.168.1.7", "192.168.1.7", True),
        ("192.168.1.8", "192.168.1.7", False),
        ("12.7.0.1", "127.0.0.1", False),
        ("fe80::1", "fe80::2", False),
        ("unknown", "192.168.1.7", False),
    ],
)
def test_the_two_addresses_tell_whether_both_ends_are_on_one_host(peer: str, local: str, same: bool) -> None:
    """A remote client without its congestion control, or a local one with pacing."""
    assert is_same_host(peer, local) is same
