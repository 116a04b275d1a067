from typing import Any

from kbroker._fast.net.send_threads import SendThreads
from kbroker._fast.net.socket_part import SocketPart

class StreamSocket(SocketPart): ...

class TlsShared:
    loop: Any
    threads: SendThreads
    deadline_seconds: float
    begun_count: int
    done_count: int
    resumed_count: int
    def __init__(self, loop: Any, threads: int, deadline_seconds: float = 30.0) -> None: ...
    def close(self) -> None: ...
