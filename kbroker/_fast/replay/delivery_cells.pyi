Taken = tuple[int, int, int, tuple[int, ...], list[tuple[int, int]], list[tuple[int, int]]]

COUNT_NAMES: tuple[str, ...]

class DeliveryCells:
    def add(self, second: int, topic: int, partition: int, sent_us: int, latency_us: int) -> None: ...
    def take(self) -> list[Taken]: ...
