"""Python's own contexts of TLS, for connections to other brokers and for commands."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding

from kbroker.security.tls.cipher_suites import split
from kbroker.security.tls.settings import TlsError, TlsSettings, tls_settings
from kbroker.security.tls.stores import read_keys, read_trusted

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_ssl_context(config: BrokerConfig, listener: str) -> ssl.SSLContext:
    """The context by which this broker, as a client, connects to that listener of another one.  TlsError."""
    return client_context(tls_settings(lambda key: config.for_listener(listener, key)))


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A client's context; `check_hostname` says whether the certificate has to name the host (`server_hostname`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.identifies_endpoints
    context.minimum_version = VERSIONS[settings.protocols[0]]
    context.maximum_version = VERSIONS[settings.protocols[-1]]
    # As Java has it: what the trust store holds is trusted, root or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = read_trusted(settings.trust_store)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
    for entry in read_keys(settings.key_store):
        with in_memory(entry.chain_pem()) as chain, in_memory(entry.key_pem()) as key:
            try:
                context.load_cert_chain(chain, key)
            except ssl.SSLError as error:
                raise TlsError(f"{settings.key_store.name}: {error.reason}") from None
    if settings.cipher_suites:
        _, older = split(settings.cipher_suites)
        try:
            context.set_ciphers(older or "ECDHE+AESGCM")
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(settings.cipher_suites)}") from None
    return context


@contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """The path of a file in memory, which nothing writes to a disk."""
    fd = os.memfd_create("kbroker-pem", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
