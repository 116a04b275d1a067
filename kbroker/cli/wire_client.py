"""How commands speak Kafka's protocol: how their client connects, and its errors as one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from kbroker.client.cluster import ClientSettings
from kbroker.client.errors import ClientError
from kbroker.errors import ErrorCode, KafkaError

_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Unknown topic or partition",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty",
}
"""Of errors for which brokers have no text."""


@contextmanager
def failing_in_words() -> Iterator[None]:
    """ClickException for what a client or a broker refuses."""
    try:
        yield
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    except KafkaError as error:
        raise click.ClickException(text_of(error)) from None


def text_of(error: KafkaError) -> str:
    """A refusal for people: Kafka's name of it and what the broker said."""
    code, text = error.code, str(error)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return text
    if text == code.name:
        return f"{code.name}: {_TEXTS[code]}" if code in _TEXTS else text
    return f"{code.name}: {text}"


def wire_settings(timeout: float, settings: Mapping[str, str]) -> ClientSettings:
    """The settings of a command's connections; `timeout` in seconds bounds each step.

    Security is that of `settings`, in librdkafka's names.  UsageError where it makes no connection.
    """
    from kbroker.security.client.client_security import ClientSecurityError
    from kbroker.security.client.librdkafka_settings import librdkafka_security

    try:
        security = librdkafka_security(settings)
    except ClientSecurityError as error:
        raise click.UsageError(str(error)) from None
    return ClientSettings(
        client_id="kbroker-cli",
        connect_timeout_s=timeout,
        request_timeout_s=timeout,
        patience_s=timeout,
        security=security,
    )
