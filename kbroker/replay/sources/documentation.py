"""`python -m kbroker.replay.sources.documentation`: writes the tables of options into docs/spark.md.

What stands between `<!-- options: reading -->` (or `writing`) and the next `<!-- end -->` is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kbroker.replay.sources.read_table import READING
from kbroker.replay.sources.write_table import WRITING

TABLES = {"reading": READING, "writing": WRITING}
DOCUMENT = Path("docs/spark.md")
_SECTION = re.compile(r"(?<=<!-- options: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The document with its tables as the code has them."""
    return _SECTION.sub(lambda found: f"{found[1]} -->\n{TABLES[found[1]].markdown()}", text)


def main(arguments: list[str]) -> None:
    """Replaces the tables of the file that is given, or of docs/spark.md."""
    path = Path(arguments[0]) if arguments else DOCUMENT
    path.write_text(with_tables(path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
