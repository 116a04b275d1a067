"""Character classes: unions, ranges, negation and intersections (`[a-z&&[^b]]`), as sets of code points.

    [abc]  [^abc]  [a-cx-z]  [a-d[m-p]]  [a-z&&[def]]  [a-z&&b-d&&[^c]]

`&&` binds least to its left.  A `^` behind the bracket negates all of the class, with its intersections.
"""

from __future__ import annotations

from kbroker.java_patterns.code_points import Ranges, complement, in_both_cases, intersection, single, union
from kbroker.java_patterns.escapes import escaped_character, named_set
from kbroker.java_patterns.syntax import Cursor

MOST_DEPTH = 100


def read_class(cursor: Cursor, *, any_case: bool, depth: int = 0) -> Ranges:
    """The set of the class whose opening bracket has been read, with its closing one.  JavaPatternError."""
    negated = cursor.takes("^")
    found = _read_items(cursor, any_case, depth)
    if not cursor.takes("]"):
        raise cursor.error("Unclosed character class")
    return complement(found) if negated else found


def _read_items(cursor: Cursor, any_case: bool, depth: int) -> Ranges:
    """All up to the closing bracket, which is a character where it comes first."""
    if depth > MOST_DEPTH:
        raise cursor.error("the pattern is nested too deeply")
    found: Ranges | None = None
    while not cursor.at_end and not (found is not None and cursor.peek() == "]"):
        if cursor.takes("&&"):
            right = _read_operand(cursor, any_case, depth)
            found = right if found is None else intersection(found, right)
            continue
        if cursor.takes("["):
            item = read_class(cursor, any_case=any_case, depth=depth + 1)
        else:
            item = _read_range(cursor, any_case)
        found = item if found is None else union(found, item)
    if found is None:
        raise cursor.error("Unclosed character class")
    return found


def _read_operand(cursor: Cursor, any_case: bool, depth: int) -> Ranges:
    """What stands right of `&&`: classes in brackets, and from the first item without one on all that is left.

    Java compiles `&` alone behind such a class, and `&&` without an operand, to sets that it does not document."""
    found: Ranges | None = None
    while not cursor.at_end and cursor.peek() not in ("]", "&"):
        if cursor.takes("["):
            item = read_class(cursor, any_case=any_case, depth=depth + 1)
        else:
            item = _read_items(cursor, any_case, depth + 1)
        found = item if found is None else union(found, item)
    if found is None:
        raise cursor.error("Bad class syntax: && without an operand")
    if cursor.peek() == "&" and cursor.peek(1) != "&":
        raise cursor.error("& behind the operand of && is not known here")
    return found


def _read_range(cursor: Cursor, any_case: bool) -> Ranges:
    if cursor.peek() == "\\" and not cursor.is_quoted:
        cursor.take()
        if cursor.peek() == "v" and cursor.peek(1) == "-":
            raise cursor.error("a range that begins with \\v is not known here")
        found = named_set(cursor, any_case=any_case)
        if found is not None:
            return found
        first = escaped_character(cursor)
    else:
        first = ord(cursor.take())
    last = first
    if cursor.peek() == "-" and cursor.at + 1 < len(cursor.text) and cursor.peek(1) not in ("[", "]"):
        cursor.take()
        last = escaped_character(cursor) if cursor.takes("\\") else ord(cursor.take())
        if last < first:
            raise cursor.error("Illegal character range")
    found = single(first) if first == last else ((first, last),)
    return in_both_cases(found) if any_case else found
