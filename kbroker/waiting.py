"""Waiting with a time-out in code that may run outside of any task.

`asyncio.timeout` cancels the task that it is entered in.  A handler runs up to its first wait without a task
(`_fast/net/request_server`), where `asyncio.timeout` raises RuntimeError.
"""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, for `seconds` at most; whether it is."""
    if not event.is_set():
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((waiting,), timeout=seconds)
        finally:
            waiting.cancel()
    return event.is_set()
