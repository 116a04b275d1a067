from enum import IntFlag

class LifeState(IntFlag):
    OPEN = 0
    ENDING = 1
    CLOSED = 2

class ReadState(IntFlag):
    READING = 0
    PAUSED = 1
    AWAITING_MEMORY = 2

class RequestState(IntFlag):
    READY = 0
    AGAIN = 1
    SERVING = 2
    WAITING = 3
    DEFERRED = 4
    THROTTLED = 5

class SendState(IntFlag):
    SEND_CLEAR = 0
    SEND_HELD = 1
    SEND_FULL = 2
    SEND_YIELDED = 3
    SEND_LENT = 4

State = type[LifeState] | type[ReadState] | type[RequestState] | type[SendState]

def follows(kind: State, now: int, then: int) -> bool: ...
