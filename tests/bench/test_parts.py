"""The benchmark of the parts: that each extension has one, and that a change since the last commit is seen."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

parts = pytest.importorskip("bench.parts", reason="the benchmark is not part of this tree")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FAST = {path.stem: path for path in sorted((ROOT / "kbroker" / "_fast").rglob("*.pyx"))}


def test_every_extension_is_measured() -> None:
    """A compiled module could become slow without anybody seeing it."""
    sources = "".join(path.read_text() for path in (ROOT / "bench").glob("test_*.py"))
    missing = []
    for name, path in FAST.items():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if f"from {module} import" in sources:
            continue
        file, _, test = parts.MEASURED_WITHIN.get(name, "").partition(": ")
        if not file or f"def {test}" not in (ROOT / file).read_text():
            missing.append(f"no benchmark in bench/ imports {module}")
    assert not missing, "\n".join(missing)


def stored(folder: pathlib.Path, name: str, commit: str, **medians: float) -> pathlib.Path:
    document: dict[str, Any] = {
        "commit_info": {"id": commit},
        "benchmarks": [{"fullname": test, "stats": {"median": median}} for test, median in medians.items()],
    }
    (folder / name).write_text(json.dumps(document))
    return folder / name


def test_a_result_is_compared_with_the_last_commits(tmp_path: pathlib.Path) -> None:
    """A regression would be compared with itself, or with a commit of long ago."""
    now = stored(tmp_path, "5.json", "c3", a=1.0)
    files = [
        stored(tmp_path, "1.json", "c1", a=1.0),
        stored(tmp_path, "2.json", "c2", a=1.0),
        stored(tmp_path, "3.json", "elsewhere", a=1.0),
        stored(tmp_path, "4.json", "c3", a=1.0),
        now,
    ]
    assert parts.before(files, now, ["c2", "c1"]) == files[1]
    assert parts.before(files, now, ["c0"]) == files[2]
    assert parts.before([now], now, ["c2"]) is None


def test_slower_and_faster_are_told_from_noise() -> None:
    """A slower part would look like the others."""
    text = parts.comparison(
        {"a": 1e-6, "b": 1e-6, "c": 1e-6, "gone": 1.0}, {"a": 2e-6, "b": 5e-7, "c": 1.05e-6, "d": 1.0}
    )
    lines = text.splitlines()
    assert lines[1].endswith("2.00x slower") and lines[2].endswith("2.00x faster")
    assert "faster" not in lines[3] and "slower" not in lines[3]
    assert lines[4].endswith("new") and "no longer there: gone" in text
    assert "1 faster, 1 slower" in lines[-1]


def test_code_is_shown_beside_its_reference() -> None:
    """What an extension is good for would not be seen."""
    text = parts.references({"bench/x.py::test_walk[150]": 2e-6, "bench/x.py::test_walk_reference[150]": 1e-3})
    assert text.splitlines()[1].split() == ["x.py::test_walk[150]", "1.00", "ms", "2.00", "us", "500x"]
