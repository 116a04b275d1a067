"""The pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a link may name behind a #: headings in small letters without punctuation, a - for each space."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(page.read_text())}
