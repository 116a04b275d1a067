"""JAAS texts, also those that nobody would write, are read as Apache Kafka's own class reads them."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest

from kbroker.config.jaas import JaasError, single_module
from tests.compat.tooling import compiled, java_command

pytestmark = [pytest.mark.compat]

PIECES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    *("required", "REQUISITE", "sufficient", "Optional", "must"),
    *(
        "username",
        "user_al",
        "password",
        "a-b",
        "a.b",
        "_x",
        "$y",
        "9a",
        "a9",
        "-",
        "-1",
        "1.5",
        "..",
        ".5",
        "j\u00f6rg",
    ),
    *("=", "=", "=", ";", ";", '"', "'", '"x y"', "'x;y'", '"a\\"b"', '"a\\101\\n\\q"', '"\\777"', '"\\4567"', '"open'),
    *(" ", " ", " ", "\n", "\t", "\r\n", "/", "//", "/*", "*/", "/* c */", "\\", "#", ",", "\u20ac", "\u0085", "\x7f"),
)
TEXTS = 4_000


def texts() -> list[str]:
    """Whole ones with something changed, and pieces in any order."""
    rng = random.Random(1)
    found = []
    for number in range(TEXTS):
        if number % 2:
            parts = [rng.choice(PIECES) for _ in range(rng.randint(1, 14))]
            found.append("".join(parts))
            continue
        options = [
            f"{rng.choice(('a', 'user_x', 'b-c', 'd.e'))}={rng.choice(PIECES)}" for _ in range(rng.randint(0, 3))
        ]
        parts = ["org.x.Module", " ", rng.choice(("required", "Optional")), " ", " ".join(options), ";"]
        for _ in range(rng.randint(0, 2)):
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(PIECES))
        found.append("".join(parts))
    return found


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=") + "."


def ours(text: str) -> str:
    """The module of a text, as the program in Java writes it down; "-" for none."""
    try:
        module = single_module(text)
    except JaasError:
        return "-"
    options = [f"{coded(key)}={coded(value)}" for key, value in sorted(module.options.items())]
    return " ".join([coded(module.name), module.flag.lower(), *options])


def test_every_text_is_read_as_by_kafka() -> None:
    """A password would be another one, or a user be missing, with the settings that Kafka was started with."""
    classes = compiled(Path(__file__).parent / "java" / "Jaas.java")
    asked = texts()
    lines = "\n".join(base64.b64encode(text.encode()).decode() for text in asked) + "\n"
    done = subprocess.run(
        java_command("Jaas", classes=classes), input=lines.encode(), capture_output=True, check=True, timeout=200
    )
    theirs = done.stdout.decode().splitlines()
    assert len(theirs) == len(asked)
    differing = [(text, java, here) for text, java in zip(asked, theirs, strict=True) if java != (here := ours(text))]
    assert differing == []
    assert sum(java != "-" for java in theirs) > TEXTS // 20
