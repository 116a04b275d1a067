"""`ssl.principal.mapping.rules`: the name of a principal, made of the name of a certificate's subject.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT      what matches, what becomes of it, in lower case

The first rule that matches the whole name counts; DEFAULT takes the name as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbroker.security.tls.settings import TlsError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_NO_END_OF_LINE = "[^\\n\\r\\x85\\u2028\\u2029]"
_PARSER = re.compile(_RULE, re.ASCII)


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` None: DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What the rule makes of the name; None where it does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        made = self.pattern.sub(lambda match: _replace(self.replacement, match), name)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """TlsError for a rule that is none."""
        self.text = text
        self._rules = tuple(_parse(text.strip()))

    def name_of(self, subject: str) -> str | None:
        """The principal's name; None where no rule matches, so that the client has none."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _parse(text: str) -> list[_Rule]:
    rules = []
    for match in _SPLITTER.finditer(text):
        rule = match[1]
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            rest = rule if parsed is None else rule[parsed.end() :]
            raise TlsError(f"ssl.principal.mapping.rules: Invalid rule: `{rule}`, unmatched substring: `{rest}`")
        if parsed[1] is not None:
            rules.append(_Rule())
        elif parsed[2] is not None:
            if re.search(r"(?<!\\)(\\\\)*\$(?![0-9])", parsed[3]) is not None:
                raise TlsError(f"ssl.principal.mapping.rules: Invalid rule: `{rule}`: $ is not followed by a number")
            try:
                rules.append(_Rule(re.compile(_as_java_reads(parsed[2]), re.ASCII), parsed[3], parsed[4]))
            except re.error as error:
                raise TlsError(f"ssl.principal.mapping.rules: Invalid rule: `{rule}`: {error}") from None
    return rules


def _as_java_reads(pattern: str) -> str:
    """The pattern with Java's `.`, which matches no end of a line of any kind."""
    made, in_class, at = [], 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            made.append(pattern[at : at + 2])
            at += 2
            continue
        in_class += (char == "[") - (char == "]" and in_class > 0)
        made.append(_NO_END_OF_LINE if char == "." and not in_class else char)
        at += 1
    return "".join(made)


def _replace(replacement: str, match: re.Match[str]) -> str:
    """As Java replaces: `$2` is a group, of as many digits as there are groups, and a backslash makes what follows
    plain.  A group that is not there is text, as Kafka has it."""
    made, at = [], 0
    groups = match.re.groups
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\" and at < len(replacement):
            made.append(replacement[at])
            at += 1
        elif char == "$" and at < len(replacement) and replacement[at] in "0123456789":
            number = int(replacement[at])
            at += 1
            while at < len(replacement) and replacement[at] in "0123456789":
                further = number * 10 + int(replacement[at])
                if further > groups:
                    break
                number = further
                at += 1
            made.append(match[number] or "" if number <= groups else f"${number}")
        else:
            made.append(char)
    return "".join(made)
