"""Compaction's two passes over ranges of a file: see clean_files.pyx."""

from kbroker._fast.clean.clean import Compaction

def index_range(
    compaction: Compaction, fd: int, position: int, end: int, buffer: bytearray, start_offset: int, most_bytes: int
) -> tuple[int, int]: ...
def clean_range(
    compaction: Compaction,
    fd: int,
    position: int,
    end: int,
    buffer: bytearray,
    most_bytes: int,
    output_fd: int,
    output_position: int,
) -> tuple[int, int, int]: ...
