"""Mutations that neither a history nor a test can find, and why: they change nothing that can be seen."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "a-sync-ends-another-generation": "changes nothing: a rebalance ends what waits for the assignments before it",
}
