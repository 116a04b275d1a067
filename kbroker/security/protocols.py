"""What a security protocol's name says (Kafka's `SecurityProtocol`): PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

from __future__ import annotations

_NUMBERS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def protocol_number(protocol: str) -> int:
    """A protocol as Kafka numbers it in registrations."""
    return _NUMBERS[protocol]


def has_tls(protocol: str) -> bool:
    """Whether connections are under TLS."""
    return protocol.endswith("SSL")


def has_sasl(protocol: str) -> bool:
    """Whether connections begin with SASL."""
    return protocol.startswith("SASL_")
