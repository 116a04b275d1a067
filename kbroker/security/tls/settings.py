"""The settings of one side of TLS, `ssl.…`, as values: a listener's, or a client's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kbroker.security.protocols import has_sasl

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

PROTOCOLS = ("TLSv1.2", "TLSv1.3")


class TlsError(ValueError):
    """Settings or stores that TLS cannot be had with.  The text names the setting, never a secret."""


class ClientAuth(StrEnum):
    """Whether clients of a listener show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A key store (`ssl.keystore.…`) or a trust store (`ssl.truststore.…`): a file, or text in PEM."""

    name: str
    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.location is not None or self.certificates is not None or self.key is not None

    @property
    def is_pem(self) -> bool:
        """Whether it is in PEM."""
        return self.type.upper() == "PEM"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What `server_context` and `client_context` are made of."""

    key_store: StoreSettings
    trust_store: StoreSettings
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    identifies_endpoints: bool = True
    """Whether a client compares the certificate with the host that it has dialled."""


def tls_settings(get: Callable[[str], object]) -> TlsSettings:
    """What `get(name)` says of each setting.  TlsError where settings contradict each other, in Kafka's words."""

    def text(name: str) -> str | None:
        value = get(name)
        return None if value is None or value == "" else str(value)

    key_store = StoreSettings(
        "ssl.keystore",
        text("ssl.keystore.type") or "JKS",
        text("ssl.keystore.location"),
        text("ssl.keystore.password"),
        text("ssl.key.password"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
    )
    trust_store = StoreSettings(
        "ssl.truststore",
        text("ssl.truststore.type") or "JKS",
        text("ssl.truststore.location"),
        text("ssl.truststore.password"),
        certificates=text("ssl.truststore.certificates"),
    )
    _check_key_store(key_store)
    _check_trust_store(trust_store)
    return TlsSettings(
        key_store,
        trust_store,
        _protocols(_items(get("ssl.enabled.protocols")), text("ssl.protocol") or "TLSv1.3"),
        _items(get("ssl.cipher.suites")),
        ClientAuth((text("ssl.client.auth") or "none").lower()),
        (text("ssl.endpoint.identification.algorithm") or "").lower() == "https",
    )


def _items(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _protocols(enabled: tuple[str, ...], protocol: str) -> tuple[str, ...]:
    for name in (*enabled, protocol):
        if name not in (*PROTOCOLS, "TLS"):
            raise TlsError(f"{name} is not among the protocols that kbroker has: {', '.join(PROTOCOLS)}")
    enabled = tuple(name for name in enabled if name != "TLS") or PROTOCOLS
    # Java's context of an older protocol does not have a newer one.
    usable = tuple(name for name in PROTOCOLS if name in enabled and not (protocol == "TLSv1.2" and name == "TLSv1.3"))
    if not usable:
        raise TlsError(f"ssl.enabled.protocols has none that ssl.protocol {protocol} allows")
    return usable


def _check_key_store(store: StoreSettings) -> None:
    if store.key is not None:
        if not store.is_pem:
            raise TlsError(f"SSL private key can be specified only for PEM, but key store type is {store.type}.")
        if store.certificates is None:
            raise TlsError("SSL private key is specified, but certificate chain is not specified.")
        if store.location is not None:
            raise TlsError("Both SSL key store location and separate private key are specified.")
    elif store.certificates is not None:
        raise TlsError("SSL certificate chain is specified, but private key is not specified")
    if store.is_pem and store.password is not None:
        raise TlsError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )
    if not store.is_pem:
        _check_password("key store", store)


def _check_trust_store(store: StoreSettings) -> None:
    if store.certificates is not None:
        if not store.is_pem:
            raise TlsError(
                f"SSL trust store certs can be specified only for PEM, but trust store type is {store.type}."
            )
        if store.location is not None:
            raise TlsError("Both SSL trust store location and separate trust certificates are specified.")
    if store.is_pem and store.password is not None:
        raise TlsError("SSL trust store password cannot be specified for PEM format.")
    if store.location is None and store.password is not None:
        raise TlsError("SSL trust store is not specified, but trust store password is specified.")


def _check_password(what: str, store: StoreSettings) -> None:
    if store.location is None and store.password is not None:
        raise TlsError(f"SSL {what} is not specified, but {what} password is specified.")
    if store.location is not None and store.password is None:
        raise TlsError(f"SSL {what} is specified, but {what} password is not specified.")


def listener_tls_settings(config: BrokerConfig, name: str, protocol: str) -> TlsSettings:
    """The settings of TLS of a listener.  TlsError."""

    def get(key: str) -> object:
        if key == "ssl.client.auth" and has_sasl(protocol):
            # Where clients log in, only the listener's own setting asks them for certificates, too.
            return config.own_of_listener(name, key, "none")
        return config.for_listener(name, key)

    return tls_settings(get)
