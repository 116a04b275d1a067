from kbroker._fast.base.helper_pool import HelperPool

def share_sleeping_pieces(
    helper_pool: HelperPool, count: int, helpers: int, nanoseconds: int = 0
) -> list[tuple[int, int]]: ...
