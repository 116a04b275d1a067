"""Whether brokers can be reached at the addresses that they give their clients.

A client requests the brokers from its bootstrap address, and connects to the addresses of the answer
(advertised.listeners).  Where none of these can be reached, librdkafka retries until its timeout, and reports only that
timeout.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.client.cluster import ClientSettings

MOST_TRIED = 5
"""Brokers that are tried; each may take until the time-out."""
CONNECT_SECONDS = 3.0


def check_advertised(host: str, port: int, settings: ClientSettings) -> None:
    """ClickException when no broker that `host:port` names can be reached; nothing where that cannot be known."""
    failures = []
    for broker_host, broker_port in _advertised(host, port, settings)[:MOST_TRIED]:
        if (broker_host, broker_port) == (host, port):
            return
        try:
            seconds = min(settings.connect_timeout_s, CONNECT_SECONDS)
            with socket.create_connection((broker_host, broker_port), timeout=seconds):
                return
        except OSError as error:
            failures.append(f"{broker_host}:{broker_port} ({error.strerror or error})")
    if failures:
        raise click.ClickException(
            f"{host}:{port} answers, but gives clients {', '.join(failures)} to go on with, which cannot be reached "
            "from here: advertised.listeners of the broker must name an address that clients reach"
        )


def _advertised(host: str, port: int, settings: ClientSettings) -> list[tuple[str, int]]:
    """Where the brokers are that a broker names."""
    from kbroker.client.errors import ClientError
    from kbroker.schemas import wire

    request = wire.MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        with settings.connect(host, port) as connection:
            answer = connection.send(request)
    except ClientError:
        return []
    if getattr(answer, "error_code", 0) != ErrorCode.NONE:
        return []
    return [(broker.host, broker.port) for broker in answer.brokers]
