"""How a listener and its clients speak below Kafka's frames: plainly, under TLS, or encrypted by a socket part of
tests, which is small and slow and does all with Python's module `ssl`."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from OpenSSL import SSL

from kbroker._fast.net.connection import Connection
from kbroker._fast.net.socket_part import PlainSocket, SocketPart
from kbroker._fast.tls.tls_shared import TlsShared
from kbroker._fast.tls.tls_socket import TlsSocket
from kbroker.security.tls import library
from kbroker.security.tls.kernel import KernelTls
from tests.extensions.encrypting_socket import EncryptingSocket


class SocketKind(NamedTuple):
    """`context` is the client's, None for plain sockets."""

    make: Callable[[Connection], SocketPart]
    context: ssl.SSLContext | None
    listener: TestedListener | None = None


PLAIN = SocketKind(PlainSocket, None)
current = PLAIN


class Certificate(NamedTuple):
    """Files of a key and of the certificate of `localhost` that both ends show, and that both trust."""

    key: str
    chain: str


def make_certificate(directory: Path) -> Certificate:
    """A new one."""
    key, chain = (str(directory / name) for name in ("key.pem", "certificate.pem"))
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-keyout", key, "-out", chain], check=True, capture_output=True)
    return Certificate(key, chain)


def _trusting(context: ssl.SSLContext, certificate: Certificate) -> ssl.SSLContext:
    context.check_hostname = False
    context.load_cert_chain(certificate.chain, certificate.key)
    context.load_verify_locations(certificate.chain)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def encrypted(certificate: Certificate) -> SocketKind:
    """The socket part of tests."""
    served = _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate)
    client = _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)
    return SocketKind(lambda connection: EncryptingSocket(connection, served), client)


class TestedListener:
    """What a TLS socket asks of its listener; notes what it is told."""

    def __init__(self, certificate: Certificate, *, tells_kernel: bool = False) -> None:
        library.load()
        self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self._context.use_privatekey_file(certificate.key)
        self._context.use_certificate_file(certificate.chain)
        self._context.load_verify_locations(certificate.chain)
        self._context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
        if tells_kernel:
            library.note_secrets(self._context)
        self.context = library.address_of(self._context)
        self.certificate_of = library.certificate_of
        self.refusals: list[tuple[str, str]] = []
        self.verdict: str | None = None
        self.shared: TlsShared | None = None

    def choose_suite(self, name: bytes) -> None:
        """The one of TLS 1.3 that clients get."""
        self._context.set_tls13_ciphersuites(name)

    def shaken(self, connection: Connection, socket: TlsSocket) -> str | None:
        return self.verdict

    def refused(self, connection: Connection, kind: str, detail: str) -> None:
        self.refusals.append((kind, detail))


def tls(
    certificate: Certificate,
    version: ssl.TLSVersion | None = None,
    threads: int = 1,
    kernel: KernelTls | None = None,
) -> SocketKind:
    """The broker's own, its client with this version of TLS alone; `kernel` may encrypt."""
    listener = TestedListener(certificate, tells_kernel=kernel is not None)
    client = _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)
    if version is not None:
        client.minimum_version = client.maximum_version = version
    shared: list[TlsShared] = []

    def make(connection: Connection) -> SocketPart:
        loop = asyncio.get_running_loop()
        if not shared or shared[0].loop is not loop:
            shared[:] = [TlsShared(loop, threads, kernel=kernel)]
            listener.shared = shared[0]
        return TlsSocket(connection, shared[0], listener)

    return SocketKind(make, client, listener)
