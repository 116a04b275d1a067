"""A listener under TLS: the context of its sessions, followed as its stores and settings change, and its clients'
first session."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509

from kbroker._fast.tls.tls_socket import TlsSocket
from kbroker.java_patterns import PatternTimeoutError
from kbroker.log_output import RateLimitedLog
from kbroker.security.principal import ANONYMOUS, AuthenticationState, Principal, Session
from kbroker.security.tls import library
from kbroker.security.tls.continuity import check_continuity
from kbroker.security.tls.distinguished_name import java_name
from kbroker.security.tls.principal_mapping import PrincipalMapping
from kbroker.security.tls.server_context import ServerContext
from kbroker.security.tls.settings import ClientAuth, TlsError, TlsSettings
from kbroker.security.tls.stores import files_of

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker._fast.tls.tls_shared import TlsShared

logger = logging.getLogger("kbroker.security")

DAY_MS = 86_400_000
WARNING_DAYS = 14

Versions = tuple[tuple[int, int, int] | None, ...]


class TlsListener:
    """See `ListenerSecurity`, and `TlsSocket` for what it asks.

    `names_clients`: whether clients are known by their certificates, or as ANONYMOUS; not where they log in by SASL.
    """

    authenticates = False
    first_frame_bytes = None

    def __init__(
        self, name: str, settings: TlsSettings, rules: PrincipalMapping, shared: TlsShared, *, names_clients: bool
    ) -> None:
        """Reads the stores.  TlsError."""
        self.name = name
        self.rules = rules
        self.reload_failures = 0
        self.reloads = 0
        self.handshakes = 0
        self._warned_of: float | None = None
        self.failures: Counter[str] = Counter()
        """Handshakes that came to nothing, by kind."""
        self.certificate_of = library.certificate_of
        self._shared = shared
        self._names_clients = names_clients
        self._complaints = RateLimitedLog(logger)
        self._files = _versions(settings)
        self._take(ServerContext(settings))

    def _take(self, made: ServerContext) -> None:
        self.made = made
        if self._shared.kernel is not None:
            library.note_secrets(made.context)
        self.context = library.address_of(made.context)

    # For connections

    def make_socket(self, connection: Connection) -> SocketPart:
        """Encrypts with the context of now, for as long as the connection lives."""
        return TlsSocket(connection, self._shared, self)

    def first_session(self, _connection: Connection) -> Session | None:
        """None: before the handshake a client is served nothing."""
        return None

    def shaken(self, connection: Connection, socket: TlsSocket) -> str | None:
        """Give the client its session after the handshake, or say why it gets none."""
        self.handshakes += 1
        if not self._names_clients:
            return None
        principal = ANONYMOUS
        if self.made.settings.client_auth is not ClientAuth.NONE:
            certificate = socket.certificate
            if certificate is not None:
                try:
                    subject = java_name(x509.load_der_x509_certificate(certificate).subject.public_bytes())
                except ValueError as error:
                    return f"the subject of the certificate cannot be read: {error}"
                try:
                    name = self.rules.name_of(subject)
                except PatternTimeoutError as error:
                    return f"ssl.principal.mapping.rules: {error}, for {subject}"
                if name is None:
                    return f"No rules apply to {subject}, rules {self.rules.text}"
                principal = Principal("User", name)
        connection.session = Session(principal, connection.peer_host, self.name, AuthenticationState.AUTHENTICATED)
        return None

    def refused(self, connection: Connection, kind: str, detail: str) -> None:
        """Count a handshake that came to nothing, and name it once per address."""
        self.failures[kind] += 1
        self._complaints.warning(
            (kind, connection.peer_host),
            "the TLS handshake of %s:%d with listener %s failed: %s",
            connection.peer_host,
            connection.peer_port,
            self.name,
            detail,
        )

    def log_suppressed(self) -> None:
        """Log how many failures of each kind were left out."""
        self._complaints.flush()

    # Changes

    def check(self, settings: TlsSettings, *, may_change_name: bool, may_change_hosts: bool) -> ServerContext:
        """The context that these settings and the stores of now give.  TlsError where it must not take the place of
        the one in use."""
        made = ServerContext(settings)
        before, after = self.made.rules.keys, made.rules.keys
        check_continuity(before, after, may_change_name=may_change_name, may_change_hosts=may_change_hosts)
        return made

    def take(self, made: ServerContext) -> None:
        """Use it for connections from now on; those that are open go on as they are."""
        self._take(made)
        self._warned_of = None
        self._files = _versions(made.settings)
        self.reloads += 1
        logger.info("listener %s has new key and trust stores; %s", self.name, self.until())

    def failed_to_change(self, error: Exception) -> None:
        """Say that the stores in use stay."""
        self.reload_failures += 1
        logger.error("listener %s keeps the key and trust stores that it has: %s", self.name, error)

    def has_changed_files(self) -> bool:
        """Whether a file of its stores is another one now; asked once for each change.  Looks at the disk."""
        before, self._files = self._files, _versions(self.made.settings)
        return before != self._files

    @property
    def ends_ms(self) -> int:
        """When the first of the certificates that it shows runs out."""
        shown = [each for entry in self.made.rules.keys for each in entry.chain]
        return round(min(each.not_valid_after_utc for each in shown).timestamp() * 1000)

    def until(self) -> str:
        """For people: how long its certificates last."""
        return f"its certificate is valid until {_date(self.ends_ms)}"

    def describe(self) -> str:
        """For people: what it speaks, and to whom."""
        settings = self.made.settings
        subject = java_name(self.made.rules.keys[0].certificate.subject.public_bytes())
        asks = {ClientAuth.NONE: "asks for no certificates", ClientAuth.REQUESTED: "asks for certificates"}
        return (
            f"listener {self.name}: {' and '.join(settings.protocols)} as {subject}, {self.until()}; "
            f"{asks.get(settings.client_auth, 'lets in clients with certificates alone')}; {self.encrypter()}"
        )

    def encrypter(self) -> str:
        """For people: what encrypts the records that it sends."""
        kernel = self._shared.kernel
        if kernel is None or self.made.highest_protocol != "TLSv1.3":
            return "OpenSSL encrypts all"
        return "the kernel encrypts records, OpenSSL the rest"

    def warn_of_end(self, now_ms: int) -> None:
        """Say once a day that the certificate runs out soon."""
        left_days = (self.ends_ms - now_ms) / DAY_MS
        if left_days < WARNING_DAYS and (self._warned_of is None or left_days <= self._warned_of - 1):
            self._warned_of = left_days
            end = f"runs out on {_date(self.ends_ms)}" if left_days > 0 else f"has run out on {_date(self.ends_ms)}"
            logger.warning("a certificate of listener %s %s", self.name, end)


def _date(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _versions(settings: TlsSettings) -> Versions:
    versions: list[tuple[int, int, int] | None] = []
    for path in files_of(settings.key_store, settings.trust_store):
        try:
            status = path.stat()
        except OSError:
            versions.append(None)
        else:
            versions.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(versions)


__all__ = ["TlsError", "TlsListener"]
