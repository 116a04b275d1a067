"""How every command first reaches a cluster: a connection that negotiates and logs in says what is wrong, and where.

librdkafka retries a wrong password, mechanism or certificate until its time is up, and reports only that time.  So the
wire client connects before it, once, and its words are the command's answer.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kbroker.client.errors import BrokerUnreachableError, ClientError

if TYPE_CHECKING:
    from kbroker.client.cluster import ClientSettings
    from kbroker.client.connection import Connection

REACH_SECONDS = 5.0
"""For all addresses together: a command says by then what is wrong."""
MOST_TRIED = 5
"""Brokers that are tried of those that a broker names."""
LEAST_SECONDS = 0.1


def reach(addresses: Iterable[tuple[str, int]], settings: ClientSettings) -> None:
    """One of the addresses answers, lets this client in, and names brokers that can be reached.

    ClickException says of each address why it does not, within REACH_SECONDS or the settings' own time to connect,
    whichever is less.
    """
    until = time.monotonic() + min(settings.connect_timeout_s, REACH_SECONDS)
    left = [*addresses]
    reasons = []
    while left:
        host, port = left.pop(0)
        share = max((until - time.monotonic()) / (len(left) + 1), LEAST_SECONDS)
        try:
            with _within(settings, share).connect(host, port) as connection:
                named = _named_by(connection)
        except ClientError as error:
            reasons.append(f"{host}:{port}: {why(error)}")
            continue
        _check_advertised((host, port), named, settings, until)
        return
    raise click.ClickException(f"cannot connect to {'; '.join(reasons)}")


def why(error: ClientError) -> str:
    """The reason alone where there is no connection at all; the client's words of what answered."""
    cause = error.__cause__
    if isinstance(error, BrokerUnreachableError) and isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
        return cause.strerror or str(cause)
    return str(error)


def _within(settings: ClientSettings, seconds: float) -> ClientSettings:
    return replace(settings, connect_timeout_s=seconds, request_timeout_s=seconds)


def _named_by(connection: Connection) -> list[tuple[str, int]]:
    """Where the brokers are that a broker names; none where it does not say, as a controller."""
    from kbroker.errors import ErrorCode
    from kbroker.schemas import wire

    try:
        answer = connection.send(wire.MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except ClientError:
        return []
    if getattr(answer, "error_code", 0) != ErrorCode.NONE:
        return []
    return [(broker.host, broker.port) for broker in answer.brokers]


def _check_advertised(
    asked: tuple[str, int], named: list[tuple[str, int]], settings: ClientSettings, until: float
) -> None:
    """ClickException when no broker that `asked` names can be reached; what it says then is for later."""
    failures = []
    tried = named[:MOST_TRIED]
    for index, address in enumerate(tried):
        if address == asked:
            return
        share = max((until - time.monotonic()) / (len(tried) - index), LEAST_SECONDS)
        try:
            _within(settings, share).connect(*address).close()
        except BrokerUnreachableError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                return
            failures.append(f"{address[0]}:{address[1]} ({why(error)})")
        except ClientError:
            return
        else:
            return
    if failures:
        raise click.ClickException(
            f"{asked[0]}:{asked[1]} answers, but gives clients {', '.join(failures)} to go on with, which cannot be "
            "reached from here: advertised.listeners of the broker must name an address that clients reach"
        )
