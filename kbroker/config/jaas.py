"""The settings of login modules as Java has them (`sasl.jaas.config`): `module flag name="value" ...;`.

They are read as Kafka's JaasConfig reads them, by the rules of Java's StreamTokenizer: words are letters, digits, `.`,
`-`, `_` and `$`; what begins with a digit is a number, and no value; anything else stands in single or double quotes,
which know C's escapes; `/`, `//` and `/* */` begin comments.

A login file has sections of login modules: `KafkaServer { module flag name="value" ...; };`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

CONTROL_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUMBER = re.compile(r"-?[0-9.]+")
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")


class JaasError(ValueError):
    """A text that holds no login modules.  The message never quotes a value, as that may be a password."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module with its options."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """The name of its class alone."""
        return self.name.rpartition(".")[2]

    def text(self) -> str:
        """The module as `parse_jaas` reads it."""
        options = "".join(
            f" {key if _word().fullmatch(key) else _in_quotes(key)}={_in_quotes(value)}"
            for key, value in self.options.items()
        )
        return f"{self.name} {self.flag.lower()}{options};"


@cache
def _word() -> re.Pattern[str]:
    """A word; such a set of characters takes milliseconds to compile."""
    return re.compile(r"[A-Za-z_$\u00a0-\U0010ffff][\w.$\u00a0-\U0010ffff-]*", re.ASCII)


def parse_jaas(text: str) -> tuple[LoginModule, ...]:
    """The login modules of a text, at least one.  JaasError."""
    tokens = list(_tokens(text))
    modules: list[LoginModule] = []
    at = 0
    while at < len(tokens):
        module, at = _module(tokens, at)
        modules.append(module)
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    return tuple(modules)


def single_module(text: str) -> LoginModule:
    """The one login module that a listener's mechanism has.  JaasError."""
    modules = parse_jaas(text)
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def parse_login_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The login modules of each section of a login file, by the section's name.  JaasError."""
    tokens = list(_tokens(text))
    sections: dict[str, tuple[LoginModule, ...]] = {}
    at = 0
    while at < len(tokens):
        name = tokens[at].word
        if name is None or at + 1 == len(tokens) or tokens[at + 1].sign != "{":
            raise JaasError("a section of a login file is: a name, login modules in { }, and ;")
        modules: list[LoginModule] = []
        at += 2
        while at < len(tokens) and tokens[at].sign != "}":
            module, at = _module(tokens, at)
            modules.append(module)
        if at + 1 >= len(tokens) or tokens[at + 1].sign != ";":
            raise JaasError(f"section {name} is not ended by }} and ;")
        if name in sections:
            raise JaasError(f"section {name} is there twice")
        sections[name] = tuple(modules)
        at += 2
    return sections


def _in_quotes(text: str) -> str:
    """A value in quotes, with any characters; a line that ends would end it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class _Token:
    """`word`: the text of a word or of quotes; None for a number and for signs."""

    sign: str
    word: str | None = field(repr=False)


def _module(tokens: list[_Token], at: int) -> tuple[LoginModule, int]:
    """The module that begins at a token, and where the next one begins."""
    name = tokens[at].word
    if name is None:
        raise JaasError("Login module not specified in JAAS config")
    if at + 1 == len(tokens):
        raise JaasError("Login module control flag not specified in JAAS config")
    flag = tokens[at + 1].word
    if flag is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.upper() not in CONTROL_FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    at += 2
    while at < len(tokens) and tokens[at].sign != ";":
        key = tokens[at].word
        if key is None:
            raise JaasError("An option without a name in JAAS config")
        has_value = at + 2 < len(tokens) and tokens[at + 1].sign == "="
        value = tokens[at + 2].word if has_value else None
        if value is None:
            raise JaasError("Value not specified for an option in JAAS config, or not quoted")
        options[key] = value
        at += 3
    if at == len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    return LoginModule(name, flag.upper(), options), at + 1


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        sign = text[at]
        if sign <= " ":
            at += 1
        elif sign == "/":
            at = _behind_comment(text, at)
        elif sign in "\"'":
            word, at = _quoted(text, at)
            yield _Token(sign, word)
        elif match := _word().match(text, at):
            at = match.end()
            yield _Token("", match[0])
        elif (match := _NUMBER.match(text, at)) and any(map(str.isdigit, match[0])):
            at = match.end()
            yield _Token("", None)
        else:
            at += 1
            yield _Token(sign, None)


def _behind_comment(text: str, at: int) -> int:
    """A slash alone begins a comment as well, of which the next character is part, a line's end as well."""
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    return min((found for found in (text.find("\n", at + 2), text.find("\r", at + 2)) if found >= 0), default=len(text))


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The text in quotes, which end at the end of the line at the latest, and where it goes on behind them."""
    quote = text[at]
    at += 1
    found: list[str] = []
    while at < len(text) and text[at] != quote and text[at] not in "\r\n":
        if text[at] != "\\" or at + 1 == len(text):
            found.append(text[at])
            at += 1
            continue
        octal = _OCTAL.match(text, at + 1)
        if octal:
            found.append(chr(int(octal[0], 8)))
            at = octal.end()
        else:
            found.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    # A quote that the line cuts off is left to end without its sign.
    return "".join(found), at + 1 if at < len(text) and text[at] == quote else at
