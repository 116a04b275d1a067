"""What systemd, or another service manager that speaks sd_notify(3), learns from the broker: when it is ready, how far
a start has come, that it stops, and that its event loop still turns.

    READY=1       once clients are served (Type=notify: what is ordered after the broker starts then)
    STATUS=...    the line of `/readyz`, shown by `systemctl status`
    EXTEND_TIMEOUT_USEC=...   while a recovery goes on: a start may take as long as the logs need
    STOPPING=1    from the signal on
    WATCHDOG=1    every half of WatchdogSec, from the event loop: a loop that hangs is restarted

The protocol is a datagram to the socket that NOTIFY_SOCKET names.  Without that variable nothing is done.  A service
manager that does not take a datagram at once misses it: the broker never waits for it.
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


class ServiceManager:
    """The service manager that started this process."""

    def __init__(self, address: str, watchdog_us: int = 0) -> None:
        """`address`: a path, or an @ and a name in the abstract namespace.  OSError where there is no such socket."""
        self._watchdog_seconds = watchdog_us / 2e6
        self._timer: asyncio.TimerHandle | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect("\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            self._socket.close()
            raise

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
    if not address.startswith(("/", "@")):
        return None
    is_watched = interval_us.isdecimal() and process in ("", str(os.getpid()))
    return ServiceManager(address, int(interval_us) if is_watched else 0)
