"""The rules for names of topics, with Kafka's own texts (org.apache.kafka.common.internals.Topic).

Legal: 1 to 249 of ASCII letters, digits, '.', '_' and '-', but not '.' or '..'.  Two names that differ only in '.'
against '_' collide, because metrics write both as '_'.
"""

from __future__ import annotations

import re

from kbroker.errors import InvalidTopicError

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether brokers themselves keep state in this topic."""
    return name in INTERNAL_TOPICS


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
