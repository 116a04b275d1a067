"""`ssl.principal.mapping.rules`: the name of a principal, made of the name of a certificate's subject.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT      what matches, what becomes of it, in lower case

The first rule that matches the whole name counts; DEFAULT takes the name as it is.  Patterns are Java's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbroker.java_patterns import JavaPattern, JavaPatternError, compile_java_pattern
from kbroker.java_patterns.replacement import replaced
from kbroker.security.tls.settings import TlsError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` None: DEFAULT."""

    pattern: JavaPattern | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What the rule makes of the name; None where it does not match.  PatternTimeoutError."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        made = replaced(self.pattern, self.replacement, name)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """TlsError for a rule that is none."""
        self.text = text
        self._rules = tuple(_parse(text.strip()))

    def name_of(self, subject: str) -> str | None:
        """The principal's name; None where no rule matches, so that the client has none.  PatternTimeoutError."""
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
                rules.append(_Rule(compile_java_pattern(parsed[2]), parsed[3], parsed[4]))
            except JavaPatternError as error:
                raise TlsError(f"ssl.principal.mapping.rules: Invalid rule: `{rule}`: {error}") from None
    return rules
