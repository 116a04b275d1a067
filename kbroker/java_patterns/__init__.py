"""Regular expressions with Java's syntax and meaning (`java.util.regex.Pattern` of Java 19 and later).

Settings of Kafka that hold a pattern are Java's: a pattern that Python's `re` also compiles may have another meaning
there (`[a-z&&[^b]]`).  A pattern is parsed here as Java parses it (`translation`) and becomes one for the package
`regex`, in which each character class is a plain list of code points (`code_points`).  What cannot keep its meaning is
refused: comments (`(?x)`), Unicode classes and Unicode case (`(?U)`, `(?u)`), `\\G`, `\\X`, `\\N{…}`, references to
groups that do not stand before them, and repeated groups of which Java documents no more than that they match (`(a*)*`
with a group, `(a)++`).

Matching takes at most `MOST_SECONDS`: a pattern that backtracks for longer is an error and does not hold the loop.
"""

from __future__ import annotations

from kbroker.java_patterns.pattern import MOST_SECONDS, JavaPattern, compile_java_pattern
from kbroker.java_patterns.syntax import JavaPatternError, PatternTimeoutError

__all__ = ["MOST_SECONDS", "JavaPattern", "JavaPatternError", "PatternTimeoutError", "compile_java_pattern"]
