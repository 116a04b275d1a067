"""The documentation's links lead somewhere, and what is kept of benchmarks stays small."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs_pages import anchors

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
RUNS = ROOT / "docs" / "benchmarks"


def test_links_lead_to_files_and_headings() -> None:
    """A reader would be sent to a page that was renamed or removed."""
    broken = []
    for page in PAGES:
        for link in LINK.findall(page.read_text()):
            if "://" in link or link.startswith("mailto:"):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken, "\n".join(broken)


def test_one_run_of_the_benchmark_is_kept() -> None:
    """Each clone and each sdist would carry megabytes of old runs: a new one takes the place of the one before."""
    runs = [path for path in RUNS.iterdir() if path.is_dir() and path.name != "replay"]
    assert [sorted(path.name for path in run.iterdir() if path.name != "report.html") for run in runs] == [
        ["report.md", "results.json.gz"]
    ]


def test_what_is_kept_of_replays_is_linked() -> None:
    """Pictures and numbers would stay of which no page says what they show."""
    named = set(LINK.findall((RUNS / "replay" / "README.md").read_text()))
    assert {path.name for path in (RUNS / "replay").iterdir()} - named == {"README.md"}
