"""The messages between the workers of a host, and their encoding.

    frame    length, 4 bytes big-endian; a pickled message
    order    Hello → Snapshot → Change and Answered as they come; Call at any time after Hello
             Gone, of the supervisor, alone
    Portion  of a long list or mapping of a Call or an Answered comes before it, so that no turn of the loop encodes or
             decodes all of it (`portions`)

Pickle is between processes of one user that one supervisor has started, over a Unix socket that no other user's process
may speak on (`controller_server`).  Even so only kbroker's own classes can be loaded: `_Unpickler` refuses all other
names.  Images hold read-only mappings, which pickle does not know by itself.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from asyncio import StreamReader

    from kbroker.metadata.image import ClusterImage, MetadataDelta

LENGTH_BYTES = 4
MOST_BYTES = 1 << 30
_KNOWN = frozenset(
    {("builtins", "frozenset"), ("builtins", "set"), ("builtins", "bytearray"), ("collections", "deque")}
)


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker has connected."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The supervisor has killed a worker that hangs: its connection is over, also while its process has not ended."""

    process_id: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as it is when the connection begins."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Change:
    """What the controller has published."""

    delta: MetadataDelta


@dataclass(frozen=True, slots=True)
class Call:
    """A method of the controller, by name.  `quota`: see `ForwardedQuota`."""

    number: int
    method: str
    arguments: tuple[object, ...]
    quota: object = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What a call has come to: its value or its error.  `charged`: what is to be counted against its quota."""

    number: int
    value: object = None
    error: KafkaError | None = None
    charged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Portion:
    """Some of the items that the Call or Answered of this number has `Ahead` of it."""

    number: int
    items: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """In the place of a list or mapping, of which this many items, or pairs, have come in portions."""

    count: int
    is_mapping: bool


Message = Hello | Gone | Snapshot | Change | Call | Answered | Portion


class MessageError(ValueError):
    """Bytes that are no message."""


def _restored_mapping(values: dict[str, object]) -> MappingProxyType[str, object]:
    return MappingProxyType(values)


def _restored_error(kind: type[KafkaError], state: dict[str, object], arguments: tuple[object, ...]) -> KafkaError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = arguments
    return error


_Reduced = tuple[Callable[..., object], tuple[object, ...]]


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> _Reduced:
        if isinstance(value, MappingProxyType):
            return _restored_mapping, (dict(value),)
        if isinstance(value, KafkaError):
            return _restored_error, (type(value), dict(value.__dict__), value.args)
        if isinstance(value, Enum):
            # Python 3.11.0 to 3.11.3, which Debian 12 has, would call `getattr`.
            return type(value), (value.value,)
        # Pickle's own way.
        return cast("_Reduced", NotImplemented)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module.startswith("kbroker.") or (module, name) in _KNOWN:
            found = super().find_class(module, name)
            # A name may lead through a module to what that imports.
            if (module, name) in _KNOWN or str(getattr(found, "__module__", "")).startswith("kbroker."):
                return found
        raise MessageError(f"{module}.{name} is nothing that workers send")


def encode(message: Message) -> bytes:
    """A frame."""
    out = io.BytesIO()
    out.write(bytes(LENGTH_BYTES))
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(message)
    size = out.tell() - LENGTH_BYTES
    out.seek(0)
    out.write(size.to_bytes(LENGTH_BYTES, "big"))
    return out.getvalue()


def decode(body: bytes) -> Message:
    """The message of a frame without its length.  MessageError."""
    try:
        message = _Unpickler(io.BytesIO(body)).load()
    except MessageError:
        raise
    except Exception as error:
        raise MessageError(f"no message: {error}") from error
    if not isinstance(message, Message):
        raise MessageError(f"{type(message).__name__} is no message")
    return message


async def read(reader: StreamReader) -> Message:
    """The next message.  IncompleteReadError or OSError at the connection's end, MessageError."""
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if size > MOST_BYTES:
        raise MessageError(f"a message of {size} bytes")
    return decode(await reader.readexactly(size))
