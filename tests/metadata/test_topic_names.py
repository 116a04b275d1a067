"""Names of topics: Kafka's rules, stated a second time in plain Python."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, InvalidTopicError
from kbroker.metadata import topic_names

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
legal_names = st.text(alphabet=sorted(ALPHABET), min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@given(st.one_of(st.text(max_size=260), st.text(alphabet=sorted(ALPHABET), max_size=260)))
def test_legal_means_kafkas_rules(name: str) -> None:
    """A name that Kafka refuses would become a directory that no Kafka tool can read."""
    expected = bool(name) and len(name) <= 249 and name not in (".", "..") and set(name) <= ALPHABET
    assert topic_names.is_legal(name) is expected


@given(legal_names)
def test_legal_names_pass_validation(name: str) -> None:
    """A client's topic would be refused for no reason."""
    topic_names.validate(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("a" * 250, f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249"),
        (
            "sp ace",
            "Topic name is invalid: 'sp ace' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (
            "new\nline\n",
            "Topic name is invalid: 'new\nline\n' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ],
)
def test_illegal_names_are_explained_in_kafkas_words(name: str, text: str) -> None:
    """The user would not learn what is wrong with the name."""
    with pytest.raises(InvalidTopicError) as caught:
        topic_names.validate(name)
    assert caught.value.message == text
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@given(legal_names, legal_names)
def test_names_collide_when_dots_and_underscores_are_one(one: str, other: str) -> None:
    """Two topics would share one line of metrics."""
    same = all(a == b or {a, b} == {".", "_"} for a, b in zip(one, other, strict=False)) and len(one) == len(other)
    assert (topic_names.collision_key(one) == topic_names.collision_key(other)) is same


def test_only_the_brokers_own_topics_are_internal() -> None:
    """A consumer with exclude.internal.topics would skip a user's topic, or read the brokers' own."""
    assert topic_names.is_internal("__consumer_offsets")
    assert topic_names.is_internal("__transaction_state")
    assert not topic_names.is_internal("__mine")
