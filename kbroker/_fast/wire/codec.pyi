from typing import Any

from typing_extensions import Buffer

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.wire.decoder import DecodeError as DecodeError
from kbroker._fast.wire.decoding import Decoding
from kbroker._fast.wire.encoder import EncodeError as EncodeError
from kbroker._fast.wire.encoding import Encoding
from kbroker._fast.wire.structs import Plan
from kbroker._fast.wire.structs import Struct as Struct
from kbroker._fast.wire.structs import make_struct as make_struct

KINDS: dict[str, int]

class Program:
    version: int
    flexible: bool
    struct_class: type[Struct]
    def __init__(self, plan: Plan, version: int) -> None: ...
    def decode(self, buffer: Buffer, pos: int = 0, end: int | None = None) -> Any: ...
    def decode_from(self, buffer: Buffer, pos: int = 0, end: int | None = None) -> tuple[Any, int]: ...
    def encode(self, struct: Struct, prefix: bytes = b"") -> bytes: ...
    def encode_parts(self, struct: Struct, prefix: bytes = b"") -> list[Buffer]: ...
    def encode_response(
        self, struct: Struct, correlation_id: int, flexible_header: bool
    ) -> bytes | list[bytes | FileRegion]: ...
    def decoding(self, buffer: Buffer, pos: int = 0, end: int | None = None) -> Decoding: ...
    def begin_response(
        self, struct: Struct, correlation_id: int, flexible_header: bool, items: int
    ) -> bytes | list[bytes | FileRegion] | Encoding: ...
