"""The context of a listener under TLS, which OpenSSL makes its sessions of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from OpenSSL import SSL, crypto

from kbroker.security.tls.cipher_suites import DEFAULT_TLS12, split
from kbroker.security.tls.client_context import in_memory
from kbroker.security.tls.settings import ClientAuth, TlsError, TlsSettings
from kbroker.security.tls.stores import KeyEntry, read_keys, read_trusted

if TYPE_CHECKING:
    from cryptography import x509

_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
_VERIFY = {
    ClientAuth.NONE: SSL.VERIFY_NONE,
    ClientAuth.REQUESTED: SSL.VERIFY_PEER,
    ClientAuth.REQUIRED: SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}
SSL_MODE_RELEASE_BUFFERS = 0x10


class ServerContext:
    """A context with what it was made of.  `keys` has at least one; `trusted` None: the system's."""

    __slots__ = ("context", "keys", "settings", "trusted")

    def __init__(self, settings: TlsSettings) -> None:
        """Reads the stores.  TlsError."""
        self.settings = settings
        self.keys = read_keys(settings.key_store)
        if not self.keys:
            raise TlsError("ssl.keystore.location or ssl.keystore.key is needed, and none is set")
        self.trusted = read_trusted(settings.trust_store)
        self.context = _make(settings, self.keys, self.trusted)

    @property
    def highest_protocol(self) -> str:
        """The best that a client can have."""
        newer, _ = split(self.settings.cipher_suites)
        return "TLSv1.2" if self.settings.cipher_suites and not newer else self.settings.protocols[-1]


def _make(
    settings: TlsSettings, keys: tuple[KeyEntry, ...], trusted: tuple[x509.Certificate, ...] | None
) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(_VERSIONS[settings.protocols[0]])
    context.set_max_proto_version(_VERSIONS[settings.protocols[-1]])
    context.set_options(
        SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_SINGLE_ECDH_USE
    )
    # A quiet connection holds no buffers of 16 KB.
    context.set_mode(SSL_MODE_RELEASE_BUFFERS)
    # Sessions are taken up again by tickets, of which the broker keeps nothing.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"kbroker")
    for entry in keys:
        _use(context, settings, entry)
    _set_suites(context, settings)
    if settings.client_auth is not ClientAuth.NONE:
        store = context.get_cert_store()
        if store is None:
            raise TlsError("OpenSSL has no store for trusted certificates")
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        if trusted is None:
            context.set_default_verify_paths()
        else:
            for each in trusted:
                store.add_cert(crypto.X509.from_cryptography(each))
                context.add_client_ca(each)
    context.set_verify(_VERIFY[settings.client_auth], None)
    return context


def _use(context: SSL.Context, settings: TlsSettings, entry: KeyEntry) -> None:
    try:
        with in_memory(entry.chain_pem()) as chain:
            context.use_certificate_chain_file(chain)
        context.use_privatekey(entry.key)  # type: ignore[arg-type]
        context.check_privatekey()
    except (SSL.Error, crypto.Error, TypeError) as error:
        raise TlsError(
            f"{settings.key_store.name}: OpenSSL does not take the key or its certificate: {error}"
        ) from None


def _set_suites(context: SSL.Context, settings: TlsSettings) -> None:
    newer, older = split(settings.cipher_suites)
    try:
        if newer:
            context.set_tls13_ciphersuites(newer.encode())
        context.set_cipher_list((older or DEFAULT_TLS12).encode())
    except SSL.Error:
        raise TlsError(f"ssl.cipher.suites: OpenSSL has not all of {', '.join(settings.cipher_suites)}") from None
    if settings.cipher_suites and not newer:
        if "TLSv1.2" not in settings.protocols:
            raise TlsError("ssl.cipher.suites has none of TLS 1.3, the one protocol that is enabled")
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
    if settings.cipher_suites and not older:
        if "TLSv1.3" not in settings.protocols:
            raise TlsError("ssl.cipher.suites has none of TLS 1.2, the one protocol that is enabled")
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
