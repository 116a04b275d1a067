"""Settings that are altered on a running broker."""

from __future__ import annotations

from tests.handlers.changes import BROKER, DELETE, SET, op, resource
from tests.scenarios.session import Session


def alter(session: Session, *edits: tuple[str, str | None], name: str = "") -> None:
    """Set settings, or give them up (None)."""
    ops = [op(key, DELETE if value is None else SET, value) for key, value in edits]
    answer = session.quietly("IncrementalAlterConfigs", 1, resources=[resource(name, *ops, kind=BROKER)])
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
