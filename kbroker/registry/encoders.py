"""From a schema to what encodes JSON by it, in the wire format: the other way of `decoders`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.registry.client import AVRO, PROTOBUF, Schema
from kbroker.registry.decoders import decoder_of
from kbroker.registry.errors import MissingLibraryError, UndecodableError, UnencodableError
from kbroker.registry.wire_format import MAGIC, PREFIX

if TYPE_CHECKING:
    from kbroker.registry.client import Registry

FIRST_MESSAGE = b"\0"
"""The path of the first message of a Protobuf file."""


Encoder = Callable[[str], bytes]
"""From JSON to a framed payload.  UnencodableError."""


def encoder_of(schema_id: int, schema: Schema) -> Encoder:
    """What encodes by a schema of that id.  SchemaError.

    With Avro, bytes are `{"base64": …}` as they are shown, and times the numbers that Avro has for them; with Protobuf,
    JSON is that of the first message of the file."""
    try:
        if schema.kind == AVRO:
            from kbroker.registry.avro import avro_encoder

            encode = avro_encoder(schema)
        elif schema.kind == PROTOBUF:
            from kbroker.registry.protobuf import protobuf_encoder

            encode = protobuf_encoder(schema)
        else:
            encode = _as_json
    except ImportError as error:
        raise MissingLibraryError(error) from None
    decode = decoder_of(schema)
    between = FIRST_MESSAGE if schema.kind == PROTOBUF else b""

    def framed(text: str) -> bytes:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnencodableError(f"it is no JSON: {error}") from None
        payload = between + encode(value)
        # Consumers would stumble over what does not read back.
        try:
            problem = decode(payload, None).problem
        except UndecodableError as error:
            problem = str(error)
        if problem:
            raise UnencodableError(problem)
        return PREFIX.pack(MAGIC, schema_id) + payload

    return framed


def encoder_from(registry: Registry, schema_id: int) -> Encoder:
    """The same for a schema of a registry.  SchemaError.  Waits."""
    return encoder_of(schema_id, registry.schema(schema_id))


def _as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
