from typing import Any, Protocol

from kbroker._fast.net.send_threads import SendThreads
from kbroker._fast.net.socket_part import SocketPart

class StreamSocket(SocketPart):
    version: str
    cipher: str

class KernelTls(Protocol):
    """See `kbroker.security.tls.kernel`."""

    @property
    def renews_keys(self) -> bool: ...
    def crypto_info(self, suite: bytes, secret: bytes, records: int) -> bytes | None: ...
    def next_secret(self, suite: bytes, secret: bytes) -> bytes: ...

class TlsShared:
    loop: Any
    threads: SendThreads
    deadline_seconds: float
    begun_count: int
    done_count: int
    resumed_count: int
    kernel: KernelTls | None
    kernel_count: int
    def __init__(
        self, loop: Any, threads: int, deadline_seconds: float = 30.0, kernel: KernelTls | None = None
    ) -> None: ...
    def close(self) -> None: ...
