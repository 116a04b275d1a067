"""`java.util.regex` asked for what it makes of patterns, and random patterns of its syntax."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from kbroker.java_patterns import JavaPatternError, compile_java_pattern

PROGRAM = Path(__file__).parent / "Matches.java"
_CHARS = "abAB019_-.,=/ \n\ré"
_ESCAPES = (
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    r"\h",
    r"\v",
    r"\.",
    r"\\",
    r"\-",
    r"\t",
    r"\x41",
    r"\u00e9",
    r"\0101",
)
_PROPERTIES = (r"\p{L}", r"\pL", r"\P{L}", r"\p{Nd}", r"\p{Alpha}", r"\p{Punct}", r"\p{IsLatin}", r"\p{IsAlphabetic}")
_ANCHORS = ("^", "$", r"\A", r"\Z", r"\z", r"\b", r"\B")
_QUANTIFIERS = ("?", "*", "+", "{2}", "{1,}", "{0,2}")


def java_answers(asked: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """A line for each pattern with its texts (`Matches.java`)."""
    lines = "".join(" ".join(each.encode().hex() for each in (pattern, *texts)) + "\n" for pattern, texts in asked)
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def own_answer(pattern: str, texts: Iterable[str]) -> str:
    """The same line by `kbroker.java_patterns`."""
    try:
        compiled = compile_java_pattern(pattern)
    except JavaPatternError:
        return "!"
    words = []
    for text in texts:
        match = compiled.fullmatch(text)
        if match is None:
            words.append("f" if compiled.search(text) is not None else "-")
        else:
            spans = (match.span(group) for group in range(compiled.groups + 1))
            # Whether a group of an empty repetition is empty or has not matched differs; no rule tells them apart.
            words.append("m:" + ",".join("" if start == end else f"{start}-{end}" for start, end in spans))
    return " ".join(words)


class Patterns:
    """Random patterns, and texts that they have a chance to match."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def texts_for(self, pattern: str) -> list[str]:
        """Short texts: of ASCII for a pattern with `\\b`, which is another thing outside of it before Java 19."""
        chars = _CHARS.replace("é", "e") if "\\b" in pattern.lower() else _CHARS
        return ["".join(self._random.choice(chars) for _ in range(self._random.randrange(7))) for _ in range(12)]

    def pattern(self, depth: int = 0) -> str:
        """A pattern, which Java may refuse."""
        draw = self._random
        made = [self._quantified(depth) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.15:
            made.insert(draw.randrange(len(made) + 1), "|")
        if depth == 0 and draw.random() < 0.2:
            made.insert(draw.randrange(len(made) + 1), draw.choice(("(?i)", "(?s)", "(?m)", "(?im)", "(?-i)")))
        return "".join(made)

    def _quantified(self, depth: int) -> str:
        draw = self._random
        atom = self._atom(depth)
        if draw.random() < 0.35:
            return atom + draw.choice(_QUANTIFIERS) + draw.choice(("", "", "?", "+"))
        return atom

    def _atom(self, depth: int) -> str:
        draw = self._random
        what = draw.random()
        if what < 0.35:
            return draw.choice("abAB019_-,=/ é.")
        if what < 0.45:
            return draw.choice(_ESCAPES + _PROPERTIES)
        if what < 0.55:
            return draw.choice(_ANCHORS)
        if what < 0.58:
            return rf"\Q{draw.choice(('a.b', '[a', '(', '1', 'A'))}\E"
        if what < 0.6:
            return draw.choice((r"\1", r"\2"))
        if what < 0.8 or depth > 2:
            return self._class(0)
        opening = draw.choice(
            ("(", "(", "(?:", "(?i:", "(?=", "(?!", "(?>", f"(?<n{draw.randrange(9)}>", "(?s:", "(?-i:")
        )
        return f"{opening}{self.pattern(depth + 1)})"

    def _class(self, depth: int) -> str:
        draw = self._random
        items = []
        for _ in range(draw.randrange(1, 4)):
            kind = draw.random()
            if kind < 0.35:
                items.append(draw.choice("abAB01_-^&,. é"))
            elif kind < 0.6:
                items.append(draw.choice(("a-c", "A-B", "0-9", "a-z", "é-ü", "+--", r"\x30-9")))
            elif kind < 0.75:
                items.append(draw.choice(_ESCAPES + _PROPERTIES))
            elif depth < 2:
                items.append(self._class(depth + 1))
            if items and draw.random() < 0.2:
                items.append(f"&&{self._class(depth + 1)}" if draw.random() < 0.7 else "&&0-z")
        return f"[{draw.choice(('', '', '^'))}{''.join(items)}]"
