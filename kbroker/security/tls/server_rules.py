"""What a listener under TLS goes by, in either library: protocols, suites, keys and trusted certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.security.tls.cipher_suites import DEFAULT_TLS12, split
from kbroker.security.tls.settings import TlsError
from kbroker.security.tls.stores import read_keys, read_trusted

if TYPE_CHECKING:
    from cryptography import x509

    from kbroker.security.tls.settings import TlsSettings
    from kbroker.security.tls.stores import KeyEntry


class ServerRules(NamedTuple):
    """`keys` has at least one; `trusted` None: the system's.

    `lowest` and `highest` are the protocols for which there are suites: `newer` of TLS 1.3, empty for OpenSSL's own,
    and `older` of TLS 1.2, both as OpenSSL writes them.
    """

    keys: tuple[KeyEntry, ...]
    trusted: tuple[x509.Certificate, ...] | None
    lowest: str
    highest: str
    newer: str
    older: str


def server_rules(settings: TlsSettings, missing_key: str) -> ServerRules:
    """By the settings of a listener; reads its stores.  TlsError, with `missing_key` where there is no key."""
    keys = read_keys(settings.key_store)
    if not keys:
        raise TlsError(missing_key)
    newer, older = split(settings.cipher_suites)
    lowest, highest = settings.protocols[0], settings.protocols[-1]
    if settings.cipher_suites and not newer:
        if "TLSv1.2" not in settings.protocols:
            raise TlsError("ssl.cipher.suites has none of TLS 1.3, the one protocol that is enabled")
        highest = "TLSv1.2"
    if settings.cipher_suites and not older:
        if "TLSv1.3" not in settings.protocols:
            raise TlsError("ssl.cipher.suites has none of TLS 1.2, the one protocol that is enabled")
        lowest = "TLSv1.3"
    return ServerRules(keys, read_trusted(settings.trust_store), lowest, highest, newer, older or DEFAULT_TLS12)
