"""What a variable's value is as a setting: the images write `setting=value` into a server.properties, as it stands, and
Java reads that file.

    a line that ends in a backslash     goes on in the next one, whose leading blanks are dropped
    any other end of a line             ends the value: what follows are lines of their own in that file
    \\t \\n \\r \\f \\uXXXX \\x          escapes; a backslash before anything else vanishes
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kbroker.config.properties import Property, parse_properties

_KEY, _NEXT = "value", "next"


@dataclass(frozen=True, slots=True)
class Written:
    """What the image's file makes of a value."""

    text: str = field(repr=False)
    lines: tuple[Property, ...] = field(default=(), repr=False)
    """What else the value sets there, by lines of its own, which are numbered within the value."""
    takes_next: bool = False
    """Whether the value ends in a backslash, which takes the file's next line into it."""


def written(value: str) -> Written:
    """What a value becomes.  PropertiesError for what Java would refuse."""
    found = list(parse_properties(f"{_KEY}={value}\n{_NEXT}="))
    takes_next = found[-1].key != _NEXT
    if takes_next:
        found = list(parse_properties(f"{_KEY}={value}"))
    else:
        del found[-1]
    return Written(found[0].value, tuple(found[1:]), takes_next)
