"""The options of client sockets: buffers, the bound on unsent bytes, congestion control.

All are set on the listening socket, from which accepted sockets inherit them, with one exception.  BBR paces: each
segment waits for a timer of the kernel.  Between two ends on one host that timer is most of the cost (fetches of 1 MB:
half the rate at twice the CPU), and there is no network to protect.  Where BBR is the system's choice, a connection
from the same host therefore uses Reno, which does not pace and which every kernel allows every user.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Protocol

logger = logging.getLogger("kbroker.network")

MAPPED_IPV4 = "::ffff:"
#: The kernel terminates and pads names of congestion controls to this size (TCP_CA_NAME_MAX).
_NAME_BYTES = 16


class Options(Protocol):
    """What can be set on a socket, also on the one that a transport of asyncio shows."""

    def setsockopt(self, level: int, option: int, value: bytes, /) -> None:
        """As of `socket.socket`."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """How sockets are set up.

    Buffer sizes of -1, a `notsent_lowat` of 0 and an empty congestion control leave the system's choice.  A
    `notsent_lowat` of less than two segments (65,483 bytes each on loopback) stalls: `sendfile` stops in the middle of
    a segment, and the kernel holds that back for 200 ms to fill it, while the bound lets nothing more in.
    """

    backlog: int
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    tcp_congestion: str = ""
    notsent_lowat: int = 0

    def apply(self, listening: socket.socket) -> None:
        """Set the options that accepted sockets inherit.  OSError when the kernel refuses one."""
        # As in Kafka: keepalive detects a client whose machine died while its request waits.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        if self.notsent_lowat > 0:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self.notsent_lowat)
        if self.tcp_congestion:
            self._set_congestion(listening)

    def _set_congestion(self, listening: socket.socket) -> None:
        name = self.tcp_congestion
        try:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            logger.warning("socket.tcp.congestion=%s is not to be had here (%s); the system's is used", name, error)

    def paces_local(self, listening: socket.socket) -> bool:
        """Whether connections from this host need `leave_out_pacing`: the system, not the operator, chose BBR."""
        return not self.tcp_congestion and congestion_control(listening).startswith("bbr")


def congestion_control(sock: socket.socket) -> str:
    """The name of a socket's congestion control."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES).rstrip(b"\0").decode()


def is_same_host(peer: str, local: str) -> bool:
    """Whether the two addresses of a connection show that both ends are on this host."""
    return peer == local or (_without_mapping(peer).startswith("127.") and _without_mapping(local).startswith("127."))


def leave_out_pacing(accepted: Options) -> None:
    """Have an accepted socket use Reno; left as it is where the kernel refuses that."""
    try:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    except OSError as error:
        logger.debug("a connection from this host keeps the system's congestion control: %s", error)


def _without_mapping(address: str) -> str:
    return address.removeprefix(MAPPED_IPV4)
