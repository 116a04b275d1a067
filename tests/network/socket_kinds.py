"""How a listener and its clients speak below Kafka's frames: plainly, or encrypted by a socket part of tests."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kbroker._fast.net.connection import Connection
from kbroker._fast.net.socket_part import PlainSocket, SocketPart
from tests.extensions.encrypting_socket import EncryptingSocket


class SocketKind(NamedTuple):
    """`context` is the client's, None for plain sockets."""

    make: Callable[[Connection], SocketPart]
    context: ssl.SSLContext | None


PLAIN = SocketKind(PlainSocket, None)
current = PLAIN


def encrypted(directory: Path) -> SocketKind:
    """Both ends show the same certificate, which both trust."""
    key, certificate = (str(directory / name) for name in ("key.pem", "certificate.pem"))
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    for context in (served, client):
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return SocketKind(lambda connection: EncryptingSocket(connection, served), client)
