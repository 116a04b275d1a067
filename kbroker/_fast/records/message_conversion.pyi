from kbroker._fast.records.batch_info import BatchInfo

Buffer = bytes | bytearray | memoryview
KEEP_OFFSETS: int
NO_APPEND_TIME: int

def records_of_messages(data: Buffer) -> bytes: ...
def rewrite_messages(
    data: Buffer, magic: int, *, first: int = -1, shift: int = 0, least: int = 0, append_time: int = -1
) -> bytes: ...
def messages_of_records(payload: Buffer, info: BatchInfo, magic: int, *, least: int = 0) -> tuple[bytes, int, int]: ...
def messages_of_piece(
    piece: Buffer, info: BatchInfo, magic: int, first_offset: int
) -> tuple[bytes, int, int, int, int, int]: ...
