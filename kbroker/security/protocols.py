"""What a security protocol's name says (Kafka's `SecurityProtocol`): PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

from __future__ import annotations


def has_tls(protocol: str) -> bool:
    """Whether connections are under TLS."""
    return protocol.endswith("SSL")


def has_sasl(protocol: str) -> bool:
    """Whether connections begin with SASL."""
    return protocol.startswith("SASL_")
