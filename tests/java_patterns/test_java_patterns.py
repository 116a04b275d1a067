"""Patterns mean here what they mean in Java: answers captured from Java 17, and random patterns where there is a Java.

`kbroker.java_patterns.syntax`, `kbroker.java_patterns.translation`, `kbroker.java_patterns.classes`,
`kbroker.java_patterns.escapes`, `kbroker.java_patterns.code_points`, `kbroker.java_patterns.pattern`,
`kbroker.java_patterns.replacement`.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path

import pytest

from kbroker.java_patterns import MOST_SECONDS, JavaPatternError, PatternTimeoutError, compile_java_pattern
from tests.java_patterns.java_oracle import Patterns, java_answers, own_answer

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
RANDOM_PATTERNS = 3000


def test_patterns_match_what_java_matches() -> None:
    """A rule would name another principal, a subscription other topics, without a word."""
    wrong = [(pattern, texts, answer) for pattern, texts, answer in VECTORS if own_answer(pattern, texts) != answer]
    assert not wrong
    assert len(VECTORS) > 400


@pytest.mark.kafka
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_random_patterns_match_what_java_matches_or_are_refused() -> None:
    """What Python reads in another way than Java would be found by users alone."""
    seed = random.randrange(1 << 30)
    patterns = Patterns(seed)
    asked = [(pattern, patterns.texts_for(pattern)) for pattern in (patterns.pattern() for _ in range(RANDOM_PATTERNS))]
    wrong = []
    compiled = 0
    for (pattern, texts), answer in zip(asked, java_answers(asked), strict=True):
        own = own_answer(pattern, texts)
        compiled += own != "!"
        if own not in ("!", answer):
            wrong.append((pattern, texts, answer, own))
    assert not wrong, f"seed {seed}"
    assert compiled > RANDOM_PATTERNS * 0.8


@pytest.mark.parametrize(
    "pattern",
    [
        "(?x)a b",
        "(?u)é",
        "(?U)\\w",
        r"\Ga",
        r"\X",
        r"\N{DIGIT ONE}",
        r"\p{javaLowerCase}",
        r"\1(a)",
        r"(?!(a))\1",
        "a{2}{3}",
        "[a&&]",
        "(a|b?)+",
        "(a)++",
        "[a&&&b]",
    ],
)
def test_what_cannot_keep_its_meaning_is_refused(pattern: str) -> None:
    """It would match something else than in Java."""
    with pytest.raises(JavaPatternError):
        compile_java_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a|aa)+[b-c]", "(?:(a|aa)+)+-"])
def test_a_pattern_that_backtracks_is_given_up(pattern: str) -> None:
    """A name that a client chooses would hold the loop for hours."""
    began = time.monotonic()
    with pytest.raises(PatternTimeoutError):
        compile_java_pattern(pattern).fullmatch("a" * 60)
    assert time.monotonic() - began < 100 * MOST_SECONDS


def test_a_pattern_that_is_nested_too_deeply_is_refused() -> None:
    """It would end the broker's process."""
    for pattern in ("(" * 5000 + ")" * 5000, "[" * 5000 + "a" + "]" * 5000):
        with pytest.raises(JavaPatternError, match="nested too deeply"):
            compile_java_pattern(pattern)
