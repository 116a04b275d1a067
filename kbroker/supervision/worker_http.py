"""Requests over HTTP to a worker, by its abstract Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kbroker.metrics.listener_address import is_own

FETCH_SECONDS = 5.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Fetched(NamedTuple):
    """An answer over HTTP; names of headers are in small letters."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = _NOTHING


async def fetch(
    address: str,
    path: str,
    accept: str = "",
    authorization: str = "",
    *,
    method: str = "GET",
    host: str = "worker",
    headers: Mapping[str, str] = _NOTHING,
    body: bytes = b"",
    seconds: float = FETCH_SECONDS,
) -> Fetched:
    """One request; empty headers are left out.  OSError, TimeoutError, ValueError."""
    sent = {
        "Host": host,
        "Accept": accept,
        "Authorization": authorization,
        "Connection": "close",
        "Content-Length": str(len(body)) if method == "POST" else "",
        **headers,
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect("\0" + address.removeprefix("@"))
        if not is_own(sock):
            raise PermissionError(f"{address} is held by another user's process")
        reader, writer = await asyncio.open_unix_connection(sock=sock)
    except OSError:
        sock.close()
        raise
    try:
        async with asyncio.timeout(seconds):
            writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
            head, _, content = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first, *fields = head.decode("latin-1").split("\r\n")
    named = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    return Fetched(int(first.split()[1]), named.get("content-type", ""), content, named)
