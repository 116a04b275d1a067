"""What a command's client and brokers refuse, as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

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
    if code is ErrorCode.SECURITY_DISABLED:
        return f"{code.name}: {text.rstrip('.')}: set authorizer.class.name at every broker and controller"
    if text == code.name:
        return f"{code.name}: {_TEXTS[code]}" if code in _TEXTS else text
    return f"{code.name}: {text}"
