"""Sets of code points as sorted, disjoint ranges, and the sets that Java has names for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from kbroker.java_patterns.syntax import JavaPatternError

Ranges = tuple[tuple[int, int], ...]
"""(first, last), both included; sorted, with a gap between each two."""

_LAST = 0x10FFFF
ALL: Ranges = ((0, _LAST),)


def single(char: int) -> Ranges:
    """The set of one code point."""
    return ((char, char),)


def union(*sets: Ranges) -> Ranges:
    """What is in any of the sets."""
    made: list[tuple[int, int]] = []
    for first, last in sorted(each for one in sets for each in one):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(last, made[-1][1])
        else:
            made.append((first, last))
    return tuple(made)


def complement(ranges: Ranges) -> Ranges:
    """What is not in the set."""
    made, after = [], 0
    for first, last in ranges:
        if first > after:
            made.append((after, first - 1))
        after = last + 1
    if after <= _LAST:
        made.append((after, _LAST))
    return tuple(made)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """What is in both sets."""
    return complement(union(complement(one), complement(other)))


def of_characters(chars: Iterable[str]) -> Ranges:
    """The set of some characters."""
    return union(*(single(ord(char)) for char in chars))


_UPPER: Ranges = ((ord("A"), ord("Z")),)
_LOWER: Ranges = ((ord("a"), ord("z")),)
_TO_LOWER = ord("a") - ord("A")


def in_both_cases(ranges: Ranges) -> Ranges:
    """The set with the other case of each ASCII letter in it, as CASE_INSENSITIVE alone compares."""
    upper, lower = intersection(ranges, _UPPER), intersection(ranges, _LOWER)
    return union(ranges, _moved(upper, _TO_LOWER), _moved(lower, -_TO_LOWER))


def _moved(ranges: Ranges, by: int) -> Ranges:
    return tuple((first + by, last + by) for first, last in ranges)


DIGIT: Ranges = ((ord("0"), ord("9")),)
_LETTER = union(_UPPER, _LOWER)
WORD = union(_LETTER, DIGIT, of_characters("_"))
_SPACE = of_characters(" \t\n\v\f\r")
_HORIZONTAL = union(of_characters(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),))
VERTICAL = of_characters("\n\v\f\r\x85\u2028\u2029")
LINE_ENDS = of_characters("\n\r\x85\u2028\u2029")
_PUNCTUATION = of_characters("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_GRAPH = union(_LETTER, DIGIT, _PUNCTUATION)

PREDEFINED = {"d": DIGIT, "h": _HORIZONTAL, "s": _SPACE, "v": VERTICAL, "w": WORD}
"""By the letter of `\\d` …; a capital letter is the complement."""

_POSIX = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0, 0x7F),),
    "Alpha": _LETTER,
    "Digit": DIGIT,
    "Alnum": union(_LETTER, DIGIT),
    "Punct": _PUNCTUATION,
    "Graph": _GRAPH,
    "Print": union(_GRAPH, single(ord(" "))),
    "Blank": of_characters(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": union(DIGIT, ((ord("A"), ord("F")), (ord("a"), ord("f")))),
    "Space": _SPACE,
    "L1": ((0, 0xFF),),
    "all": ALL,
}
_SUBCATEGORIES = {"L": "ultmo", "M": "nec", "N": "dlo", "Z": "slp", "C": "cfosn", "P": "dsecoif", "S": "mcko"}
_CATEGORIES = frozenset(major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors))
_BINARY = {
    "alphabetic": "Alphabetic",
    "ideographic": "Ideographic",
    "letter": "L",
    "lowercase": "Lowercase",
    "uppercase": "Uppercase",
    "titlecase": "Lt",
    "punctuation": "P",
    "control": "Cc",
    "white_space": "White_Space",
    "digit": "Nd",
    "hex_digit": "Hex_Digit",
    "join_control": "Join_Control",
}
"""Java's binary properties, and what `regex` names the same set."""
_DEPENDS_ON_CASE = frozenset({"Lower", "Upper", "Lu", "Ll", "Lt", "lowercase", "uppercase", "titlecase"})


def of_property(name: str, *, any_case: bool) -> Ranges:
    """The set of `\\p{name}`.  JavaPatternError for one that Java has not, or that is not known here.

    `any_case`: within CASE_INSENSITIVE, where what such a set is depends on Java's version."""
    key, equals, value = name.partition("=")
    if equals:
        kind = {"sc": "Script", "script": "Script", "blk": "Block", "block": "Block"}.get(key.lower())
        if kind is not None:
            return _of_regex(f"{kind}={value}", name)
        if key.lower() not in ("gc", "general_category") or value not in _CATEGORIES:
            raise JavaPatternError(f"Unknown Unicode property {{{name}}}")
        return _of_category(value, any_case)
    if name in _POSIX:
        _check_case(name, any_case)
        return _POSIX[name]
    if name == "LC":
        raise JavaPatternError("the property {LC} is not known here")
    if name.startswith("java"):
        raise JavaPatternError(f"the property {{{name}}} of Java's class Character is not known here")
    if name.startswith("In"):
        return _of_regex(f"Block={name[2:]}", name)
    if name.startswith("Is"):
        rest = name[2:]
        if rest in _CATEGORIES:
            return _of_category(rest, any_case)
        if (binary := _BINARY.get(rest.lower())) is not None:
            _check_case(rest.lower(), any_case)
            return _of_regex(binary, name)
        if rest.lower() in ("assigned", "noncharacter_code_point", "emoji"):
            raise JavaPatternError(f"the property {{{name}}} depends on Java's version")
        return _of_regex(f"Script={rest}", name)
    if name in _CATEGORIES:
        return _of_category(name, any_case)
    raise JavaPatternError(f"Unknown character property name {{{name}}}")


def _of_category(name: str, any_case: bool) -> Ranges:
    _check_case(name, any_case)
    return _of_regex(name, name)


def _check_case(name: str, any_case: bool) -> None:
    if any_case and name in _DEPENDS_ON_CASE:
        raise JavaPatternError(f"what {{{name}}} matches without regard to case depends on Java's version")


@lru_cache(64)
def _of_regex(named: str, as_written: str) -> Ranges:
    import regex

    if not all(char.isalnum() or char in "_ =-" for char in named):
        raise JavaPatternError(f"Unknown character property name {{{as_written}}}")
    try:
        runs = regex.compile(rf"\p{{{named}}}+")
    except regex.error:
        raise JavaPatternError(f"Unknown character property name {{{as_written}}}") from None
    everything = "".join(map(chr, range(_LAST + 1)))
    return tuple((run.start(), run.end() - 1) for run in runs.finditer(everything))


def written(ranges: Ranges) -> str:
    """The set as a class for the package `regex`."""
    if not ranges:
        return "(?!)"
    if ranges == ALL:
        return "(?s:.)"
    return f"[{''.join(_written(ranges))}]"


def _written(ranges: Ranges) -> Iterator[str]:
    for first, last in ranges:
        yield code_point(first) if first == last else f"{code_point(first)}-{code_point(last)}"


def code_point(char: int) -> str:
    """One code point, as an escape that means itself within a class and outside."""
    return f"\\U{char:08X}"
