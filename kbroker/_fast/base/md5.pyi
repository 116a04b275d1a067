"""MD5 of record keys: see md5.pyx."""

from typing_extensions import Buffer

WIDE: bool

def md5(buffer: Buffer) -> bytes: ...
def md5_many(messages: list[bytes]) -> bytes: ...
