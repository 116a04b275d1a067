from collections.abc import Mapping
from typing import Any

def simulate_sockets(by_inode: Mapping[int, Any] | None) -> None: ...
