"""How this broker connects to others as a client: by the inter-broker listener's settings, which all brokers share."""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

from kbroker.config.classes import LOGIN_HANDLER, UNSECURED_LOGIN
from kbroker.security.client.client_security import ClientSecurity, ClientSecurityError
from kbroker.security.client.java_settings import security_of

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


def between_brokers(config: BrokerConfig, listener: str) -> ClientSecurity:
    """The security of connections to that listener of other brokers.  ClientSecurityError.

    The mechanism is `sasl.mechanism.inter.broker.protocol`; its login module is the one that the listener's clients
    are checked by, which has the name and the password of this broker, too, as in Kafka.
    """
    protocol = next(each.protocol for each in config.listeners if each.name == listener)
    return _client_of(config, listener, protocol, config.get("sasl.mechanism.inter.broker.protocol"))


def to_controllers(config: BrokerConfig) -> ClientSecurity:
    """The security of connections to the controllers of a KRaft cluster: by the settings of the first of
    `controller.listener.names`, the mechanism `sasl.mechanism.controller.protocol`.  ClientSecurityError."""
    assert config.controller_listener is not None
    listener, protocol = config.controller_listener
    return _client_of(config, listener, protocol, config.get("sasl.mechanism.controller.protocol"))


def _client_of(config: BrokerConfig, listener: str, protocol: str, mechanism: str) -> ClientSecurity:
    if config.for_mechanism(listener, mechanism, LOGIN_HANDLER) == UNSECURED_LOGIN and mechanism == "OAUTHBEARER":
        raise ClientSecurityError(
            f"{LOGIN_HANDLER} of listener {listener}: it makes tokens without a signature, and kbroker takes none"
        )

    def get(name: str) -> str | None:
        value = config.for_mechanism(listener, mechanism, name)
        if value is None:
            return None
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    return security_of(get, protocol, mechanism)


class FreshContext:
    """A context of the stores as they are: made anew where a file has changed since the last connection."""

    def __init__(self, security: ClientSecurity) -> None:
        self._security = security
        self._lock = threading.Lock()
        self._stamps: list[tuple[int, int]] | None = None
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext:
        """The context for one connection.  TlsError, or OSError, where there is no earlier one that goes on."""
        from kbroker.security.tls.settings import TlsError
        from kbroker.security.tls.stores import files_of

        assert self._security.tls is not None
        with self._lock:
            try:
                files = files_of(self._security.tls.key_store, self._security.tls.trust_store)
                stats = [path.stat() for path in files]
                stamps = [(each.st_mtime_ns, each.st_size) for each in stats]
                if self._context is None or stamps != self._stamps:
                    self._context, self._stamps = self._security.context(), stamps
            except (OSError, TlsError):
                if self._context is None:
                    raise
            return self._context
