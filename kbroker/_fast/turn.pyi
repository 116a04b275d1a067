from typing import Any

from kbroker._fast.busy_poll import BusyPoll
from kbroker._fast.crew import Crew
from kbroker._fast.log_fields import PurgatoryFields

class Turn:
    def __init__(
        self, loop: Any, services: Any, busy_poll: BusyPoll, crew: Crew, purgatory: PurgatoryFields | None = None
    ) -> None: ...
    def end(self) -> None: ...
