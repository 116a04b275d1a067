"""How a table fits a terminal: columns as narrow as their words allow; where they do not, cells below each other.

A long word may be broken behind a `-`, `_`, `.`, `/`, `:`, `=` or `@` that no digit follows, so no number, time or
address is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

GAP = 3
"""Between two columns."""
WHOLE = 16
"""How long a word may be without ever being broken."""
_LEAST = 8
"""Of a value behind its name, however narrow the terminal."""
_BREAK = re.compile(r"(?<=[-_./:=@])(?![-_./:=@\d])")


def _pieces(word: str) -> list[str]:
    return [word] if len(word) <= WHOLE else [piece for piece in _BREAK.split(word) if piece]


def _wide(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def wrapped(text: str, width: int) -> list[str]:
    """A cell's text in lines of at most `width`; what has no place to break is cut there."""
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            room = f"{line} " if line else ""
            if _wide(room + word) <= width:
                line = room + word
                continue
            if line:
                lines.append(line)
                line = ""
            for piece in _pieces(word):
                if _wide(line + piece) > width and line:
                    lines.append(line)
                    line = ""
                line += piece
                while _wide(line) > width:
                    lines.append(line[:width])
                    line = line[width:]
        lines.append(line)
    return lines


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The width of each column of a table that fits into `room`; None where a word would have to be cut for it."""
    cells = [[header, *column] for header, column in zip(headers, zip(*rows, strict=True), strict=True)] if rows else []
    if not cells:
        cells = [[header] for header in headers]
    widths = [max(max(map(_wide, cell.splitlines()), default=0) for cell in column) for column in cells]
    least = [
        max(_wide(piece) for cell in column for word in cell.split() or [""] for piece in _pieces(word) or [""])
        for column in cells
    ]
    least = [max(narrow, _wide(header)) for narrow, header in zip(least, headers, strict=True)]
    left = room - GAP * (len(headers) - 1)
    if sum(least) > left:
        return widths if sum(widths) <= left else None
    while sum(widths) > left:
        widest = max((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def one_below_the_other(
    headers: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> list[list[tuple[str, str]]]:
    """Each row as (name, text) lines, a name only before the first line of its cell; names as wide as the longest."""
    wide = max(map(_wide, headers), default=0)
    blocks = []
    for row in rows:
        block = []
        for header, cell in zip(headers, row, strict=True):
            lines = wrapped(cell, max(room - wide - GAP, _LEAST))
            block += [((header if not number else "").ljust(wide), line) for number, line in enumerate(lines)]
        blocks.append(block)
    return blocks
