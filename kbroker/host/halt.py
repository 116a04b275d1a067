"""The last resort where something, such as a thread that waits for a disk, holds up the end of the process."""

from __future__ import annotations

import os
import threading

HALT_SECONDS = 10.0
"""For the parts of a broker to end in order."""


def exit_later(status: int) -> None:
    """End the process after HALT_SECONDS, even if a thread hangs."""
    timer = threading.Timer(HALT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()
