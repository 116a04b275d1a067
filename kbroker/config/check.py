"""What a setting's value must satisfy, as one short text per row.

    >=N            at least N                          A..B          between A and B, both included
    A..B or N      between A and B, or exactly N       one of a, b   one of these, by exact spelling
    anycase of a   one of these, in any case           each of a, b  a list of these
    some of a, b   a list of these without repeats, not empty
    filled         a list without empty items
    distinct       a list without repeats              distinct nonempty   the same, and not the empty list
    nonempty       a text that is not empty            replicas      `*` or a list of partition:broker pairs
    metrics listener   `none`, http://host:port or https://host:port     address counts  a list of address:number
    workers            `auto` or 1 to 256
    authorizer class   a known one, or none   known class   one of kbroker.config.classes
    principals    principalType:principalName between semicolons
    urls               a list of http:// or https:// URLs without user and password
    masks              a list of topic:value.field, topic:key or topic:header.name
    schema files       a list of topic/key=file or topic/value=file
    message format     a Kafka release: 0.9.0, 0.10.2-IV0, 2.8.1, 3.0-IV1

Reasons are Kafka's words where Kafka has the check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kbroker.config.authorizer import principals_of
from kbroker.config.classes import assignor_name, known_names
from kbroker.config.value import InvalidValueError, UnacceptableListError

_REPLICAS = r"([0-9]+:[0-9]+)?"
_ADDRESS_COUNT = r"[^\s,]+:[0-9]{1,9}"
_MESSAGE_FORMAT = (
    r"0\.(8|9)\.[0-2]|0\.10(\.[0-2](-IV[0-9])?)?|0\.11\.0(-IV[0-9])?"
    r"|(1\.[01]|2\.[0-8]|3\.[0-9]|4\.[0-3])(-IV[0-9])?"
)
_WORKERS = r"auto|[1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-6]"
_URL = r"https?://(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]?#]+)(:[0-9]{1,5})?(/[^\s?#]*)?"
_SCHEMA_FILE = r"[^\s/=]+/(key|value)=.*[^/]\.(avsc|proto|json)"
_MASK = r"(\*|[^\s:*]+\*?):(key|value|header)(\.[^.\s]+)*"
_METRICS_LISTENER = r"none|https?://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]*):[0-9]{1,5}/?"
_WHOLE: Mapping[str, tuple[str, str]] = {
    "metrics listener": (_METRICS_LISTENER, "Value must be none, http://host:port or https://host:port"),
    "workers": (_WORKERS, "Value must be auto or a number from 1 to 256"),
}


def check_value(key: str, check: str, value: Any) -> None:
    """Raises `InvalidValueError` or `UnacceptableListError` when `value` breaks `check`.  Null passes every check."""
    if not check or value is None:
        return
    if check.startswith(">="):
        _check_at_least(key, value, float(check[2:]), check[2:])
    elif check.startswith("one of "):
        options = check[7:]
        if value not in options.split(", "):
            raise InvalidValueError(key, value, f"String must be one of: {options}")
    elif check.startswith("anycase of "):
        options = check[11:]
        if value.lower() not in options.split(", "):
            raise InvalidValueError(key, value, f"String must be one of (case insensitive): {options}")
    elif ".." in check:
        _check_range(key, check, value)
    else:
        _check_shape(key, check, value)


def _check_at_least(key: str, value: float, low: float, text: str) -> None:
    if value < low:
        raise InvalidValueError(key, value, f"Value must be at least {text}")


def _check_range(key: str, check: str, value: float) -> None:
    bounds, _, exception = check.partition(" or ")
    low, high = bounds.split("..")
    if exception:
        if value != int(exception) and not int(low) <= value <= int(high):
            raise InvalidValueError(key, value, f"Value must be between {low} and {high} or equal to {exception}")
        return
    _check_at_least(key, value, float(low), low)
    if value > float(high):
        raise InvalidValueError(key, value, f"Value must be no more than {high}")


def _check_shape(key: str, check: str, value: Any) -> None:
    if check in _WHOLE:
        pattern, reason = _WHOLE[check]
        if re.fullmatch(pattern, value) is None:
            raise InvalidValueError(key, value, reason)
    elif check == "principals":
        try:
            principals_of(value)
        except ValueError as error:
            raise InvalidValueError(key, value, str(error)) from error
    elif check in ("authorizer class", "known class"):
        _check_class(key, check, value)
    elif check == "nonempty":
        if not value:
            raise InvalidValueError(key, value, "String must be non-empty")
    elif check == "address counts":
        if not all(re.fullmatch(_ADDRESS_COUNT, item.strip()) for item in value.split(",") if item.strip()):
            raise InvalidValueError(key, value, "Value must be a list of address:number")
    elif check == "message format":
        # What is behind the release, as in 2.8.1, Kafka does not look at.
        parts = value.split(".")
        if re.fullmatch(_MESSAGE_FORMAT, ".".join(parts[: 3 if parts[0] == "0" else 2])) is None:
            raise InvalidValueError(key, value, f"Version `{value}` is not a valid version")
    elif check == "replicas":
        if value != ["*"] and not all(re.fullmatch(_REPLICAS, item) for item in value):
            wanted = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            raise InvalidValueError(
                key,
                f"[{', '.join(value)}]",
                f"{key} must be the literal '*' or a list of replicas in the following format: {wanted}",
            )
    else:
        _check_list(key, check, value)


def _check_class(key: str, check: str, value: str) -> None:
    known = known_names(key)
    may_be_empty = check == "authorizer class"
    if value not in known and (value or not may_be_empty):
        ours = "its own authorizer is known by" if may_be_empty else "it knows"
        raise InvalidValueError(key, value, f"kbroker runs no Java; {ours} {', '.join(known)}")


_ITEMS: Mapping[str, tuple[str, str]] = {
    "urls": (_URL, "Value must be http:// or https:// URLs without user and password"),
    "schema files": (_SCHEMA_FILE, "Value must be topic/key=file or topic/value=file, of .avsc, .proto or .json files"),
    "masks": (
        _MASK,
        "Value must be topic:key, topic:value or topic:header, each with a path, as orders:value.card.number",
    ),
}


def _check_list(key: str, check: str, value: list[str]) -> None:
    if check in _ITEMS:
        pattern, reason = _ITEMS[check]
        for item in value:
            if re.fullmatch(pattern, item) is None:
                raise InvalidValueError(key, item, reason)
        return
    options = check[8:].split(", ") if check.startswith(("each of ", "some of ")) else None
    for item in value:
        if not item:
            raise UnacceptableListError(f"Configuration '{key}' values must not be empty.")
        if options is not None and assignor_name(item) not in options:
            raise InvalidValueError(key, item, f"String must be one of: {check[8:]}")
    if check == "filled" or check.startswith("each of "):
        return
    if len(set(map(assignor_name, value))) != len(value):
        raise UnacceptableListError(f"Configuration '{key}' values must not be duplicated.")
    if check != "distinct" and not value:
        raise UnacceptableListError(
            f"Configuration '{key}' must not be empty. Valid values include: any non-empty value"
        )


def describe_check(check: str) -> str:
    """`check` for people: what the documentation and `kbroker config` show as allowed."""
    if check.startswith(">="):
        return f"at least {check[2:]}"
    if ".." in check:
        return check.replace("..", " to ")
    described = {
        "": "",
        "nonempty": "not empty",
        "filled": "no empty items",
        "distinct": "no repeats",
        "distinct nonempty": "not empty, no repeats",
        "replicas": "* or partition:broker pairs",
        "address counts": "address:number,…",
        "message format": "a Kafka release, such as 0.9.0 or 0.10.2",
        "metrics listener": "none, http://host:port or https://host:port",
        "workers": "auto, 1 to 256",
        "urls": "http:// or https:// URLs",
        "schema files": "topic/key=file or topic/value=file",
        "masks": "topic:value.field, topic:key or topic:header.name",
        "authorizer class": f"nothing, {', '.join(known_names('authorizer.class.name'))}",
        "known class": "a class that docs/security.md has",
        "principals": "principalType:principalName;…",
    }
    if check in described:
        return described[check]
    for words, shown in (("anycase of ", ""), ("one of ", ""), ("each of ", "any of "), ("some of ", "")):
        if check.startswith(words):
            return shown + check.removeprefix(words)
    return check
