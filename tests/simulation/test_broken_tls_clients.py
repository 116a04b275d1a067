"""Clients that make no session of TLS: what their judge has to see, and what it may not invent."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.broken_tls_clients import Unkeyed
from tests.simulation.judge import Judge, ViolationError

ALERT = bytes.fromhex("15030300020246")
PLAIN = bytes.fromhex("0000000a00000001")


def judged(said: bytes) -> None:
    world: Any = SimpleNamespace(later=random.Random(1), judge=Judge(lambda: 0.0))
    Unkeyed(world, "unkeyed", 1).judge_said(said)


@pytest.mark.parametrize("said", [b"", ALERT])
def test_an_end_with_a_word_of_tls_or_without_is_no_violation(said: bytes) -> None:
    """Each refusal would be one."""
    judged(said)


def test_a_plain_answer_is_seen() -> None:
    """A listener under TLS could serve clients without it."""
    with pytest.raises(ViolationError, match="makes no session"):
        judged(PLAIN)
