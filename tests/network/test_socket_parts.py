"""A connection over a socket part that is not the plain one; `test_connection` runs over both."""

from __future__ import annotations

import pytest
import uvloop

from tests.network import socket_kinds
from tests.network.served_connection import ECHO, answer, frame, running, until


def test_a_connection_knows_the_certificate_that_its_client_has_shown(
    encrypted: socket_kinds.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it no principal could be made of a client's certificate."""

    monkeypatch.setattr(socket_kinds, "current", encrypted)
    assert encrypted.context is not None
    (certificate,) = encrypted.context.get_ca_certs(binary_form=True)

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(ECHO, 1, b"x"))
            await answer(reader)
            (connection,) = harness.listener.endpoint.connections
            assert connection.socket.certificate == certificate
            writer.close()

    uvloop.run(main())


def test_a_client_that_speaks_without_encryption_is_hung_up_on(
    encrypted: socket_kinds.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sent in clear would be taken for a request."""
    monkeypatch.setattr(socket_kinds, "current", encrypted._replace(context=None))

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(ECHO, 1, b"x"))
            assert frame(ECHO, 1, b"x") not in await reader.read()
            await until(lambda: not harness.listener.endpoint.connections)
            writer.close()

    uvloop.run(main())
