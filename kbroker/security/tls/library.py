"""OpenSSL, as the package `cryptography` carries it: its functions for C, and what Python asks of a session."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol, SupportsInt

from kbroker._fast.tls import kernel_tls, tls_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from OpenSSL.SSL import Context


class _Library(Protocol):
    """The functions that are called from here."""

    OPENSSL_VERSION_TEXT: object

    def SSL_get_peer_certificate(self, session: object) -> object: ...  # noqa: N802
    def BIO_s_mem(self) -> object: ...  # noqa: N802
    def BIO_new(self, kind: object) -> object: ...  # noqa: N802
    def BIO_free(self, memory: object) -> int: ...  # noqa: N802
    def BIO_get_mem_data(self, memory: object, start: object) -> int: ...  # noqa: N802
    def i2d_X509_bio(self, memory: object, certificate: object) -> int: ...  # noqa: N802
    def X509_free(self, certificate: object) -> None: ...  # noqa: N802
    def SSL_CTX_set_keylog_callback(self, context: object, taker: object) -> None: ...  # noqa: N802
    def SSL_CTX_set_msg_callback(self, context: object, taker: object) -> None: ...  # noqa: N802


class _Interface(Protocol):
    """cffi's."""

    NULL: object

    def cast(self, kind: str, value: object) -> SupportsInt: ...
    def addressof(self, library: _Library, name: str) -> object: ...
    def new(self, kind: str) -> Sequence[object]: ...
    def buffer(self, start: object, size: int) -> bytearray: ...
    def string(self, start: object) -> bytes: ...


@cache
def load() -> tuple[_Library, _Interface]:
    """Load the library, and give its functions to `_fast/tls/tls_socket`."""
    from cryptography.hazmat.bindings._rust import _openssl

    lib, ffi = _openssl.lib, _openssl.ffi
    tls_library.load({name: int(ffi.cast("uintptr_t", ffi.addressof(lib, name))) for name in tls_library.NAMES})
    return lib, ffi


def version() -> str:
    """The version of OpenSSL, as it says it."""
    lib, ffi = load()
    return ffi.string(lib.OPENSSL_VERSION_TEXT).decode("ascii")


def address_of(context: Context) -> int:
    """Where C finds the SSL_CTX.  It is there as long as the context, and as the sessions made of it."""
    _, ffi = load()
    return int(ffi.cast("uintptr_t", context._context))


def tells_secrets() -> bool:
    """Whether OpenSSL tells the secrets that the kernel's keys come of, and of clients that want new ones."""
    lib, _ = load()
    return hasattr(lib, "SSL_CTX_set_keylog_callback") and hasattr(lib, "SSL_CTX_set_msg_callback")


def note_secrets(context: Context) -> None:
    """Have sessions of this context keep the secret that the kernel's keys come of, and note that others are wanted."""
    lib, ffi = load()
    taker = ffi.cast("void (*)(const SSL *, const char *)", kernel_tls.secret_taker())
    lib.SSL_CTX_set_keylog_callback(context._context, taker)
    kind = "void (*)(int, int, int, const void *, size_t, SSL *, void *)"
    lib.SSL_CTX_set_msg_callback(context._context, ffi.cast(kind, kernel_tls.message_taker()))


def certificate_of(session: int) -> bytes | None:
    """The certificate, in DER, that the other side of a session has shown; None where it has shown none."""
    lib, ffi = load()
    certificate = lib.SSL_get_peer_certificate(ffi.cast("SSL *", session))
    if certificate == ffi.NULL:
        return None
    memory = lib.BIO_new(lib.BIO_s_mem())
    try:
        lib.i2d_X509_bio(memory, certificate)
        start = ffi.new("char **")
        size = lib.BIO_get_mem_data(memory, start)
        return bytes(ffi.buffer(start[0], size))
    finally:
        lib.BIO_free(memory)
        lib.X509_free(certificate)
