class FileShrunkError(OSError):
    fd: int
    def __init__(self, fd: int, text: str) -> None: ...

class Sender:
    queued_bytes: int
    def __init__(self, fd: int) -> None: ...
