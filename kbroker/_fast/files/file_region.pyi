class FileRegion:
    fd: int
    position: int
    size: int
    owner: object
    def __init__(self, fd: int, position: int, size: int, owner: object = None) -> None: ...
    def __len__(self) -> int: ...
