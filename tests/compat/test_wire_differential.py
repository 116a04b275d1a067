"""The same bytes to Kafka and to kbroker: the record of what came of it, and that it comes to no less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compat.tooling import ROOT
from tests.compat.wire_differential import RECORD, apis, cases, compare, table

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())


def test_the_documentation_has_the_record() -> None:
    """Users would be told of answers that no run has shown."""
    assert table(RECORDED) in (ROOT / "docs" / "compatibility.md").read_text()


def test_sound_requests_of_every_version_can_be_made() -> None:
    """An API of a version that is new in the tables would not be compared, unnoticed."""
    for kafka in ("4.3.1", "3.9.1"):
        for api, version in apis(kafka):
            names = [case.name for case in cases(api, version)]
            assert names[:2] == ["sound", "sound again"]
            assert len(names) == len(set(names))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_more_is_answered_otherwise_than_on_record(tmp_path: Path) -> None:
    """A change would make kbroker answer otherwise than Kafka, and nobody would know which request."""
    found = compare(tmp_path)
    worse = {
        name: sorted(set(row["otherwise"]) - set(RECORDED[name]["otherwise"]))
        for name, row in found.items()
        if name in RECORDED and len(row["otherwise"]) > len(RECORDED[name]["otherwise"])
    }
    assert worse == {}
