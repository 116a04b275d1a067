"""`sasl.kerberos.principal.to.local.rules`: a client's name, made of its Kerberos principal.

    RULE:[1:$1@$0](.*@EXAMPLE\\.COM)s/@.*//,DEFAULT

`[n:format]` is for principals of n parts; in the format `$0` is the realm, `$1` and `$2` are the parts.  The pattern in
parentheses has to match what the format gives as a whole; then `s/pattern/replacement/` is applied (`g`: to all
matches), and `/L` or `/U` changes the case.  DEFAULT takes the first part of a principal of the broker's own realm.
The first rule that applies counts.  Patterns are Java's; the grammar is that of Kafka's KerberosRule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kbroker.java_patterns import JavaPattern, JavaPatternError, PatternTimeoutError, compile_java_pattern
from kbroker.java_patterns.replacement import replaced

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU]?)",
    re.ASCII,
)
_PRINCIPAL = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_PARAMETER = re.compile(r"\$(\d*)", re.ASCII)
_REFERENCE = re.compile(r"\\.|\$(?P<group>\d?)", re.ASCII | re.DOTALL)


class KerberosRuleError(ValueError):
    """A rule that is none."""


class NoKerberosNameError(Exception):
    """A principal to which no rule gives a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`format` None: DEFAULT."""

    parts: int = 0
    format: str | None = None
    match: JavaPattern | None = None
    found: JavaPattern | None = None
    replacement: str = ""
    replaces_all: bool = False
    case: str = ""

    def apply(self, parameters: tuple[str, ...], own_realm: str) -> str | None:
        """The name; None where the rule is not for the principal, whose realm comes first.  PatternTimeoutError."""
        if self.format is None:
            made = parameters[1] if parameters[0] == own_realm else None
        elif len(parameters) - 1 != self.parts:
            made = None
        else:
            made = _PARAMETER.sub(lambda match: parameters[int(match[1])], self.format)
            if self.match is not None and self.match.fullmatch(made) is None:
                made = None
            elif self.found is not None:
                made = replaced(self.found, self.replacement, made, once=not self.replaces_all)
        if made is None:
            return None
        if "/" in made or "@" in made:
            raise NoKerberosNameError(f"Non-simple name {made} after auth_to_local rule")
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


class KerberosNames:
    """The rules of one listener."""

    def __init__(self, rules: Iterable[str] = ("DEFAULT",)) -> None:
        """KerberosRuleError."""
        self._rules = tuple(_parse(rule.strip()) for rule in rules)

    def name_of(self, principal: str, own_realm: str) -> str:
        """The name of a client.  NoKerberosNameError where no rule gives one."""
        parsed = _PRINCIPAL.fullmatch(principal)
        if parsed is None or not parsed["first"]:
            raise NoKerberosNameError(f"Malformed Kerberos name: {principal}")
        parameters = (parsed["realm"], *(each for each in parsed.group("first", "second") if each is not None))
        try:
            for rule in self._rules:
                name = rule.apply(parameters, own_realm)
                if name:
                    return name
        except PatternTimeoutError as error:
            raise NoKerberosNameError(str(error)) from None
        raise NoKerberosNameError(f"No rules apply to {principal}")


def _parse(text: str) -> _Rule:
    found = _RULE.match(text)
    if found is None:
        raise KerberosRuleError(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise KerberosRuleError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    if found["default"] is not None:
        return _Rule()
    parts = int(found["parts"])
    for number in _PARAMETER.findall(found["format"]):
        if not number or int(number) > parts:
            raise KerberosRuleError(f"Invalid rule: `{text}`: ${number} is none of $0 to ${parts}")
    try:
        pattern = None if found["from"] is None else compile_java_pattern(found["from"])
        match = None if found["match"] is None else compile_java_pattern(found["match"])
    except JavaPatternError as error:
        raise KerberosRuleError(f"Invalid rule: `{text}`: {error}") from None
    replacement = found["to"] or ""
    for each in _REFERENCE.finditer(replacement):
        number = each["group"]
        if pattern is not None and number is not None and (not number or int(number) > pattern.groups):
            raise KerberosRuleError(f"Invalid rule: `{text}`: there is no group ${number}")
    return _Rule(parts, found["format"], match, pattern, replacement, found["all"] is not None, found["case"])
