from collections.abc import Callable
from typing import Any

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.requests.many_fetch import ManyFetch

class SessionFetch(ManyFetch):
    def __init__(
        self, partition_data: Any, file_system: type, resume: Callable[[Any, Any, Any, list[FetchTarget]], Any]
    ) -> None: ...
