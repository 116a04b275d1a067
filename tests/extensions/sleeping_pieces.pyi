from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.net.send_threads import SendThreads

def share_sleeping_pieces(
    helper_pool: HelperPool, count: int, helpers: int, nanoseconds: int = 0
) -> list[tuple[int, int]]: ...
def lend_nothing(threads: SendThreads, user: object) -> bool: ...
