"""The address of the metrics listener, and who may connect to that of a worker."""

from __future__ import annotations

import os
import socket
import struct
from urllib.parse import urlsplit

DEFAULT_PORT = 9644
ADMINISTRATOR = 0
"""The id of root."""
_UCRED = struct.Struct("iII")
"""Process, user and group of a peer (unix(7))."""


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket is this user's, or root's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(credentials)[1] in (ADMINISTRATOR, os.getuid())


def parse_listener(text: str) -> tuple[str, int] | None:
    """Host and port of a `metrics.listener` value, None for `none`.  ValueError when it is neither.

    A worker has `unix:@name` from its supervisor.
    """
    if text.strip().lower() in ("", "none"):
        return None
    if text.startswith("unix:@"):
        return text.removeprefix("unix:"), 0
    parts = urlsplit(text if "//" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"metrics.listener={text!r}: must be none, http://host:port or https://host:port")
    return parts.hostname, DEFAULT_PORT if parts.port is None else parts.port


def is_encrypted(listener: str) -> bool:
    """Whether a `metrics.listener` value asks for TLS."""
    return listener.strip().lower().startswith("https://")


def console_address(listener: str, port: int) -> str:
    """Where a browser of this machine finds the console of a `metrics.listener` value; `port`: what it listens on."""
    host = urlsplit(listener if "//" in listener else f"http://{listener}").hostname or ""
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"{'https' if is_encrypted(listener) else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/console/"
