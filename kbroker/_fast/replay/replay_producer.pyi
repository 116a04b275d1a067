from kbroker._fast.replay.delivery_client import DeliveryClient

ALL_DONE: int
SLICE_OVER: int
NOT_PRODUCED: int

class ReplayProducer(DeliveryClient):
    sent: int
    sent_bytes: int
    late: int
    queue_full_us: int
    def describe(self, mark_name: bytes, late_us: int) -> None: ...
    def play(self, slot: int, row: int, slice_ns: int) -> tuple[int, int]: ...
