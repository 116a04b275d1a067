"""The rules for names of topics, with Kafka's own texts (org.apache.kafka.common.internals.Topic).

Legal: 1 to 249 of ASCII letters, digits, '.', '_' and '-', but not '.' or '..'.  Two names that differ only in '.'
against '_' collide, because metrics write both as '_'.
"""

from __future__ import annotations

import re

from kbroker.errors import InvalidTopicError
from kbroker.types import CLUSTER_METADATA_TOPIC as CLUSTER_METADATA_TOPIC
from kbroker.types import GROUP_METADATA_TOPIC as GROUP_METADATA_TOPIC
from kbroker.types import INTERNAL_TOPICS as INTERNAL_TOPICS
from kbroker.types import SHARE_GROUP_STATE_TOPIC as SHARE_GROUP_STATE_TOPIC
from kbroker.types import TRANSACTION_STATE_TOPIC as TRANSACTION_STATE_TOPIC
from kbroker.types import is_internal as is_internal

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    return 0 < len(name) <= MAX_NAME_LENGTH and name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def validate(name: str) -> None:
    """InvalidTopicError, with Kafka's text, when a topic may not have this name."""
    if not is_legal(name):
        raise InvalidTopicError(f"Topic name is invalid: {_reason(name)}")


def _reason(name: str) -> str:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def has_collision_characters(name: str) -> bool:
    """Whether another legal name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Equal for two names exactly when they are the same to a metrics reporter."""
    return name.replace(".", "_")
