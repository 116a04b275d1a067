"""An assertion that cannot fail protects nothing.  Each row is a bug, or a state that a bug would leave, and the
assertion that notices it: without that assertion the row fails.

Tests: `assert` statements of `kbroker.storage.log`, `kbroker.replication` and `kbroker.coordinator`.
"""

from __future__ import annotations

import ast
import traceback
from pathlib import Path

import pytest

import kbroker
from tests.invariants import coordinator_rows, replication_rows, storage_rows
from tests.invariants.rows import Row

PACKAGE = Path(kbroker.__file__).parent
ROWS = (*storage_rows.ROWS, *replication_rows.ROWS, *coordinator_rows.ROWS)
LEAST = 400


def assertion_at(path: Path, line: int) -> str:
    """The `assert` statement that a line belongs to."""
    source = path.read_text(encoding="utf-8")
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    return next(ast.get_source_segment(source, node) or "" for node in found if node.lineno <= line <= node.end_lineno)


@pytest.mark.parametrize("row", ROWS, ids=[row.bug for row in ROWS])
def test_a_bug_is_noticed_where_it_begins(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be met far from where it came to be, in records that are lost or delivered twice."""
    with pytest.raises(AssertionError) as failure:
        row.broken(tmp_path, monkeypatch)
    last = traceback.extract_tb(failure.value.__traceback__)[-1]
    assert Path(last.filename) == PACKAGE / row.module, f"another assertion has failed: {last}"
    assert row.asserted in assertion_at(Path(last.filename), last.lineno or 0)


def test_there_are_as_many_as_there_were() -> None:
    """They would go, one by one, as code is moved."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    assert sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)) >= LEAST
