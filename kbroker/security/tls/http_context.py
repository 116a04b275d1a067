"""TLS of the metrics listener: `ssl.*`, or `listener.name.metrics.ssl.*`, by Python's own context."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding

from kbroker.security.tls.client_context import VERSIONS, in_memory
from kbroker.security.tls.server_rules import server_rules
from kbroker.security.tls.settings import ClientAuth, TlsError, TlsSettings, listener_tls_settings
from kbroker.security.tls.stores import KeyEntry, files_of, read_keys

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.security")

NAME = "metrics"
_NO_KEY = "metrics.listener is https: ssl.keystore.location is not set"
_VERIFIES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class HttpContext:
    """One context for all connections: a key that changes on disk is taken by those that follow."""

    def __init__(self, settings: TlsSettings) -> None:
        """Reads the stores.  TlsError."""
        self._settings = settings
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        rules = server_rules(settings, _NO_KEY)
        self.context.minimum_version = VERSIONS[rules.lowest]
        self.context.maximum_version = VERSIONS[rules.highest]
        try:
            # Python sets no suites of TLS 1.3: those are OpenSSL's own, all of them strong.
            self.context.set_ciphers(rules.older)
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites: OpenSSL has not all of {', '.join(settings.cipher_suites)}") from None
        self.context.verify_mode = _VERIFIES[settings.client_auth]
        self.context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if rules.trusted:
            found = b"".join(each.public_bytes(Encoding.DER) for each in rules.trusted)
            self.context.load_verify_locations(cadata=found)
        self._stamps = self._look()
        self._load(rules.keys)

    @staticmethod
    def of(config: BrokerConfig) -> HttpContext:
        """By a broker's settings.  TlsError."""
        return HttpContext(listener_tls_settings(config, NAME, "SSL"))

    def _look(self) -> list[tuple[int, int]]:
        stats = [path.stat() for path in files_of(self._settings.key_store) if path.exists()]
        return [(each.st_mtime_ns, each.st_size) for each in stats]

    def _load(self, keys: Sequence[KeyEntry]) -> None:
        if not keys:
            raise TlsError(_NO_KEY)
        for entry in keys:
            with in_memory(entry.chain_pem()) as chain, in_memory(entry.key_pem()) as key:
                try:
                    self.context.load_cert_chain(chain, key)
                except ssl.SSLError as error:
                    raise TlsError(f"{self._settings.key_store.name}: {error.reason}") from None

    def refresh(self) -> None:
        """Take a key that has changed; where it cannot be used, the old one goes on.  Blocks for reading files."""
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._load(read_keys(self._settings.key_store))
        except TlsError as error:
            logger.error("the metrics listener keeps its old certificate: %s", error)
        else:
            logger.info("the metrics listener has a new certificate")
