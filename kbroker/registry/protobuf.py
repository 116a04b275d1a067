"""Protobuf: protoc (grpcio-tools) compiles a schema's text in a process of its own, Google's library decodes by it.

Some clients register descriptors in base64 instead of text, which a registry may give back as they are.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory

from kbroker.own_python import module_command
from kbroker.registry.decoded import Decoded
from kbroker.registry.errors import SchemaError, UndecodableError, UnencodableError
from kbroker.registry.wire_format import message_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from kbroker.registry.client import Schema
    from kbroker.registry.decoded import Decoder

COMPILE_SECONDS = 30
MOST_DESCRIPTOR_BYTES = 16 << 20
MAIN = "kbroker_schema.proto"
WELL_KNOWN = "google/protobuf/"
COMPILER = "grpc_tools"
"""The package of grpcio-tools, which is run as a program."""


def protobuf_decoder(schema: Schema, folder: Path | None) -> Decoder:
    """See `decoded.Decoder`.  SchemaError, ImportError."""
    main, pool = _load(_assembled(schema) or _compile(schema, folder))

    def decode(payload: bytes, path: bytes | None) -> Decoded:
        if path is None:
            indexes, at = message_path(payload)
        else:
            indexes, at = message_path(path or b"\0")[0], 0
        made = message_factory.GetMessageClass(_find(main, indexes))()
        try:
            made.ParseFromString(payload[at:])
            value = json_format.MessageToDict(
                made, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, descriptor_pool=pool
            )
        except (message.DecodeError, json_format.Error, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise UndecodableError(f"not Protobuf of this schema: {error}") from None
        return Decoded(value)

    return decode


def protobuf_encoder(schema: Schema) -> Callable[[object], bytes]:
    """What writes the first message of a file.  SchemaError, ImportError; UnencodableError of what it gives."""
    main, pool = _load(_assembled(schema) or _compile(schema, None))

    def encode(value: object) -> bytes:
        try:
            made = message_factory.GetMessageClass(_find(main, (0,)))()
            json_format.ParseDict(value, made, descriptor_pool=pool)
            return bytes(made.SerializeToString(deterministic=True))
        except Exception as error:  # The library raises all kinds for values that are not of a message.
            raise UnencodableError(f"not of this Protobuf schema: {error}") from None

    return encode


def _find(file: FileDescriptor, indexes: tuple[int, ...]) -> Descriptor:
    """The message at a path of indexes.  UndecodableError."""
    types = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(types):
            raise UndecodableError(f"the schema has no message at {list(indexes)}")
        found = types[index]
        types = list(found.nested_types)
    if found is None:
        raise UndecodableError("no message is named")
    return found


def _assembled(schema: Schema) -> bytes | None:
    """The descriptors of a schema that has them in the place of text; None where it is text."""
    files = descriptor_pb2.FileDescriptorSet()
    for name, text in (*schema.references, (MAIN, schema.text)):
        file = _descriptor(text)
        if file is None:
            return None
        for imported in file.dependency:
            known = {each.name for each in files.file}
            if imported.startswith(WELL_KNOWN) and imported not in known:
                files.file.add().ParseFromString(_well_known(imported))
        file.name = name
        files.file.append(file)
    return bytes(files.SerializeToString())


def _descriptor(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        return None


def _well_known(name: str) -> bytes:
    """The descriptor of one of Google's own files."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        found: bytes = import_module(module).DESCRIPTOR.serialized_pb
    except (ImportError, AttributeError, TypeError, ValueError):
        raise SchemaError(f"the Protobuf schema imports {name}, which is not known") from None
    return found


def _compile(schema: Schema, folder: Path | None) -> bytes:
    """The descriptors of a schema and all that it imports.  ImportError without the compiler."""
    if find_spec(COMPILER) is None:
        raise ImportError(f"No module named {COMPILER!r}")
    with tempfile.TemporaryDirectory(prefix="kbroker-proto-") as name:
        place = Path(name)
        for file, text in (*schema.references, (MAIN, schema.text)):
            _put(place, file, text)
        out = place / "descriptors"
        # A schema cannot bring this process down with the compiler.
        command = module_command(f"{COMPILER}.protoc", f"-I{place}", f"--descriptor_set_out={out}")
        if folder is not None:
            command.append(f"-I{folder}")
        try:
            done = subprocess.run(
                [*command, "--include_imports", MAIN], capture_output=True, timeout=COMPILE_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SchemaError(f"protoc does not compile the Protobuf schema: {error}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().replace(f"{place}/", "")
            raise SchemaError(f"the Protobuf schema cannot be used: {said[-500:]}")
        if out.stat().st_size > MOST_DESCRIPTOR_BYTES:
            raise SchemaError(f"the Protobuf schema has more than {MOST_DESCRIPTOR_BYTES} bytes of descriptors")
        return out.read_bytes()


def _put(place: Path, file: str, text: str) -> None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in file:
        raise SchemaError(f"a reference with the name {file!r}")
    target = place / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _load(compiled: bytes) -> tuple[FileDescriptor, descriptor_pool.DescriptorPool]:
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled)
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(MAIN), pool
    except (message.DecodeError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"the Protobuf schema cannot be used: {error}") from None
