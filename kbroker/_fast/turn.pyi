from typing import Any

from kbroker._fast.busy_poll import BusyPoll
from kbroker._fast.crew import Crew

class Turn:
    def __init__(self, loop: Any, services: Any, busy_poll: BusyPoll, crew: Crew) -> None: ...
    def end(self) -> None: ...
