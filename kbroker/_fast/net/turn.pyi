from typing import Any

from kbroker._fast.base.crew import Crew
from kbroker._fast.log.log_fields import PurgatoryFields
from kbroker._fast.net.busy_poll import BusyPoll

class Turn:
    def __init__(
        self, loop: Any, services: Any, busy_poll: BusyPoll, crew: Crew, purgatory: PurgatoryFields | None = None
    ) -> None: ...
    def end(self) -> None: ...
