"""What systemd, or another service manager that speaks sd_notify(3), learns from the broker: when it is ready, how far
a start has come, that it stops, and that its event loop still turns.

    READY=1       once clients are served (Type=notify: what is ordered after the broker starts then)
    STATUS=...    the line of `/readyz`, shown by `systemctl status`
    EXTEND_TIMEOUT_USEC=...   while a recovery goes on: a start may take as long as the logs need
    STOPPING=1    from the signal on
    WATCHDOG=1    every half of WatchdogSec, from the event loop: a loop that hangs is restarted

The protocol is a datagram to the socket that NOTIFY_SOCKET names.  Without that variable nothing is done.  A service
manager that does not take a datagram at once misses it: the broker never waits for it.

A worker's service manager is its supervisor.  It names no address, to which any process of the machine could send, but
a descriptor that the worker has inherited (`channel`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from kbroker.metrics.readiness import ReadyState

if TYPE_CHECKING:
    from kbroker.metrics.readiness import Readiness

EXTENSION_US = 60_000_000
_DESCRIPTOR = "fd:"
"""A value of NOTIFY_SOCKET that begins so goes on with the number of an inherited descriptor."""


def channel() -> tuple[socket.socket, socket.socket]:
    """A supervisor's end and a worker's end of a channel that no other process can send to."""
    own, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.setblocking(False)
    return own, workers


def named(workers_end: socket.socket) -> str:
    """The value of NOTIFY_SOCKET for a child process that inherits its end of a channel."""
    return f"{_DESCRIPTOR}{workers_end.fileno()}"


class ServiceManager:
    """The service manager that started this process."""

    def __init__(self, address: str, watchdog_us: int = 0) -> None:
        """`address`: a path, an @ and a name in the abstract namespace, or what `named` gives.  OSError where there is
        no such socket."""
        self._watchdog_seconds = watchdog_us / 2e6
        self._timer: asyncio.TimerHandle | None = None
        self._socket = _inherited(address) if address.startswith(_DESCRIPTOR) else _connected(address)

    def follow(self, readiness: Readiness, loop: asyncio.AbstractEventLoop) -> None:
        """Send every change of `readiness` from now on, and signs of life of `loop` where they are expected."""
        readiness.subscribe(self._changed)
        self._changed(readiness)
        if self._watchdog_seconds:
            self._live(loop)

    def _changed(self, readiness: Readiness) -> None:
        lines = [f"STATUS={readiness.text}"]
        if readiness.state is ReadyState.READY:
            lines.append("READY=1")
        elif readiness.state is ReadyState.STOPPING:
            lines.append("STOPPING=1")
        else:
            lines.append(f"EXTEND_TIMEOUT_USEC={EXTENSION_US}")
        self._send("\n".join(lines))

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        self._send("WATCHDOG=1")
        self._timer = loop.call_later(self._watchdog_seconds, self._live, loop)

    def _send(self, text: str) -> None:
        try:
            self._socket.send(text.encode())
        except OSError:
            pass  # It is gone, or its queue is full: the broker serves without it.

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()


def service_manager(environ: MutableMapping[str, str] = os.environ) -> ServiceManager | None:
    """The service manager that the environment names, or None.  OSError where its socket cannot be reached.

    The variables are taken out of the environment, so that no child process speaks in the broker's name.
    """
    address = environ.pop("NOTIFY_SOCKET", "")
    interval_us, process = environ.pop("WATCHDOG_USEC", "0"), environ.pop("WATCHDOG_PID", "")
    if not address.startswith(("/", "@", _DESCRIPTOR)):
        return None
    is_watched = interval_us.isdecimal() and process in ("", str(os.getpid()))
    return ServiceManager(address, int(interval_us) if is_watched else 0)


def _connected(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        sock.close()
        raise
    return sock


def _inherited(address: str) -> socket.socket:
    number = address.removeprefix(_DESCRIPTOR)
    if not number.isdecimal():
        raise OSError(f"{address} names no descriptor")
    sock = socket.socket(fileno=int(number))
    # Child processes of this one do not speak in its name.
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
