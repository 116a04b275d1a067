"""The pages of reports, of a replay and of the benchmark: in the dark and on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("kbroker/replay/report/page.html", "bench/page.html")
COLOUR = r"#[0-9a-f]{3,6}\b"


@pytest.mark.parametrize("page", PAGES)
def test_each_colour_has_one_for_the_dark(page: str) -> None:
    """Dark letters would stand on a dark page, and only those who read at night see it."""
    style = (ROOT / page).read_text().partition("<style>")[2].partition("</style>")[0]
    light, dark = (
        dict(re.findall(rf"(--\w+): ({COLOUR})", each)) for each in re.findall(r":root \{(.*?)\}", style, re.S)
    )
    assert light.keys() == dark.keys()
    rest = re.sub(r":root \{.*?\}", "", style, flags=re.DOTALL)
    assert not re.search(COLOUR, rest)
    assert set(re.findall(r"var\((--\w+)\)", rest)) == light.keys()


@pytest.mark.parametrize("page", PAGES)
def test_what_is_wide_scrolls_by_itself_on_a_phone(page: str) -> None:
    """The page would scroll sideways as a whole, or its pictures be too small to read."""
    text = (ROOT / page).read_text()
    assert 'content="width=device-width, initial-scale=1"' in text
    assert len(re.findall(r'<div class="wide"><table>', text)) == len(re.findall("<table", text)) > 1
    pictures = re.findall(r'(<div class="wide">)?{{ (?:plot\.)?svg \| safe }}', text)
    assert len(pictures) - pictures.count('<div class="wide">') <= text.count('<div class="pair">')
