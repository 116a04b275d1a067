from enum import IntFlag

class SendState(IntFlag):
    SEND_CLEAR = 0
    SEND_HELD = 1
    SEND_FULL = 2
    SEND_YIELDED = 3
    SEND_LENT = 4

class RequestState(IntFlag):
    READY = 0
    SERVING = 1
    DEFERRED = 2
    THROTTLED = 3

def follows(kind: type[SendState] | type[RequestState], now: int, then: int) -> bool: ...
