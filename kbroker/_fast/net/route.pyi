from collections.abc import Callable, Iterable
from typing import Any

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.gate.gate import Gatekeeper
from kbroker._fast.net.answer_memo import AnswerMemo
from kbroker._fast.net.busy_poll import BusyPoll
from kbroker._fast.net.direct import DirectAnswers
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.send_threads import SendThreads

class NoResponse: ...

NO_RESPONSE: NoResponse

class Route:
    api_key: int
    min_version: int
    max_version: int
    cacheable: bool
    asks: int
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
        cacheable: bool = False,
        direct: DirectAnswers | None = None,
        throttle_at: Callable[[int], int] | None = None,
        limits_at: Callable[[int], int] | None = None,
        asks: int = 0,
        keeps_frame: bool = False,
    ) -> None: ...

class Endpoint:
    listener_name: str
    reactor: Reactor
    services: Any
    gatekeeper: Gatekeeper | None
    pool: BufferPool
    stats: RequestStats
    connections: set[Any]
    answers: AnswerMemo
    busy_poll: BusyPoll
    send_threads: SendThreads
    draining: bool
    max_frame_bytes: int
    first_frame_bytes: int
    def __init__(
        self,
        listener_name: str,
        reactor: Reactor,
        services: Any,
        routes: Iterable[Route],
        owner: Any,
        max_frame_bytes: int,
        first_frame_bytes: int,
    ) -> None: ...
