"""The tables of Kafka's messages, one module per API family, each imported when a message of it is first asked for.

`message("ProduceRequest")` gives the message's class.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from kbroker.protocol.api import ApiKey
from kbroker.protocol.messages import build_message
from kbroker.protocol.schema import MessageSchema
from kbroker.schemas.families import FAMILY_OF_API, FAMILY_OF_DATA

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Program


@cache
def message(name: str) -> Any:
    """The class of the message that Kafka calls `name`.  KeyError when there is none."""
    return build_message(schema(name))


@cache
def program(name: str, version: int = 0) -> Program:
    """Encodes and decodes a version of the message that Kafka calls `name`.  KeyError when there is none."""
    made: Program = message(name).program(version)
    return made


def schema(name: str) -> MessageSchema:
    """The table of the message that Kafka calls `name`.  KeyError when there is none."""
    for candidate in family_messages(family_of(name)):
        if candidate.name == name:
            return candidate
    raise KeyError(name)


def family_of(name: str) -> str:
    """The module that has the schema of this name.  KeyError."""
    family = FAMILY_OF_DATA.get(name)
    if family is None:
        family = FAMILY_OF_API[name.removesuffix("Request").removesuffix("Response")]
    return family


def family_messages(family: str) -> tuple[MessageSchema, ...]:
    """All tables of one family."""
    module = importlib.import_module(f"kbroker.schemas.{family}")
    messages: tuple[MessageSchema, ...] = module.MESSAGES
    return messages


def families() -> list[str]:
    """The names of all modules with schemas."""
    return sorted({*FAMILY_OF_API.values(), *FAMILY_OF_DATA.values()})


def request_message(api_key: int) -> Any:
    """The class of an API's request.  ValueError for an unknown key."""
    return message(f"{ApiKey(api_key).message_name}Request")


def response_message(api_key: int) -> Any:
    """The class of an API's answer.  ValueError for an unknown key."""
    return message(f"{ApiKey(api_key).message_name}Response")


def request_schema(api_key: int) -> MessageSchema:
    """The table of an API's request."""
    return schema(f"{ApiKey(api_key).message_name}Request")


def response_schema(api_key: int) -> MessageSchema:
    """The table of an API's answer."""
    return schema(f"{ApiKey(api_key).message_name}Response")
