from typing import Any

from kbroker._fast.busy_poll import BusyPoll

class Turn:
    def __init__(self, loop: Any, services: Any, busy_poll: BusyPoll) -> None: ...
    def end(self) -> None: ...
