"""The context of a listener under TLS, which OpenSSL makes its sessions of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from OpenSSL import SSL, crypto

from kbroker.security.tls.client_context import in_memory
from kbroker.security.tls.server_rules import ServerRules, server_rules
from kbroker.security.tls.settings import ClientAuth, TlsError, TlsSettings

if TYPE_CHECKING:
    from kbroker.security.tls.stores import KeyEntry

_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
_VERIFY = {
    ClientAuth.NONE: SSL.VERIFY_NONE,
    ClientAuth.REQUESTED: SSL.VERIFY_PEER,
    ClientAuth.REQUIRED: SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}
SSL_MODE_RELEASE_BUFFERS = 0x10


class ServerContext:
    """A context with what it was made of."""

    __slots__ = ("context", "rules", "settings")

    def __init__(self, settings: TlsSettings) -> None:
        """Reads the stores.  TlsError."""
        self.settings = settings
        self.rules = server_rules(settings, "ssl.keystore.location or ssl.keystore.key is needed, and none is set")
        self.context = _make(settings, self.rules)

    @property
    def highest_protocol(self) -> str:
        """The best that a client can have."""
        return self.rules.highest


def _make(settings: TlsSettings, rules: ServerRules) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(_VERSIONS[rules.lowest])
    context.set_max_proto_version(_VERSIONS[rules.highest])
    context.set_options(
        SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_SINGLE_ECDH_USE
    )
    # A quiet connection holds no buffers of 16 KB.
    context.set_mode(SSL_MODE_RELEASE_BUFFERS)
    # Sessions are taken up again by tickets, of which the broker keeps nothing.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"kbroker")
    for entry in rules.keys:
        _use(context, settings, entry)
    try:
        if rules.newer:
            context.set_tls13_ciphersuites(rules.newer.encode())
        context.set_cipher_list(rules.older.encode())
    except SSL.Error:
        raise TlsError(f"ssl.cipher.suites: OpenSSL has not all of {', '.join(settings.cipher_suites)}") from None
    if settings.client_auth is not ClientAuth.NONE:
        store = context.get_cert_store()
        if store is None:
            raise TlsError("OpenSSL has no store for trusted certificates")
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        if rules.trusted is None:
            context.set_default_verify_paths()
        else:
            for each in rules.trusted:
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
