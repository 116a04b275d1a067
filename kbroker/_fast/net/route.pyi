from collections.abc import Callable, Iterable
from typing import Any

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.crew import Crew
from kbroker._fast.log.log_fields import PurgatoryFields
from kbroker._fast.net.answer_memo import AnswerMemo
from kbroker._fast.net.busy_poll import BusyPoll
from kbroker._fast.net.direct import DirectAnswers
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.send_threads import SendThreads
from kbroker._fast.net.turn import Turn

class NoResponse: ...

NO_RESPONSE: NoResponse

class Route:
    api_key: int
    min_version: int
    max_version: int
    lasting: bool
    header_flexible_from: int
    answer_flexible_from: int
    def __init__(
        self,
        api_key: int,
        min_version: int,
        max_version: int,
        handle: Callable[..., Any],
        compile_request: Callable[[int], Any],
        compile_response: Callable[[int], Any],
        header_flexible_from: int,
        answer_flexible_from: int,
        lasting: bool = False,
        direct: DirectAnswers | None = None,
    ) -> None: ...

class Endpoint:
    listener_name: str
    services: Any
    pool: BufferPool
    stats: RequestStats
    connections: set[Any]
    answers: AnswerMemo
    busy_poll: BusyPoll
    send_threads: SendThreads
    crew: Crew
    turn: Turn
    draining: bool
    max_frame_bytes: int
    def __init__(
        self,
        listener_name: str,
        services: Any,
        pool: BufferPool,
        stats: RequestStats,
        routes: Iterable[Route],
        loop: Any,
        owner: Any,
        max_frame_bytes: int,
        busy_poll_us: int = 0,
        threads: int = 0,
        purgatory: PurgatoryFields | None = None,
    ) -> None: ...
    def change_threads(self, threads: int) -> None: ...
    def end_threads(self) -> None: ...
