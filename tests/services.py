"""Parts of a broker in the place of others, in a test."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.services import Services


def put(services: Services, **parts: Any) -> None:
    """Have a broker's services, which are made once, hold these parts."""
    for name, part in parts.items():
        object.__setattr__(services, name, part)
