"""From a schema to what decodes payloads by it, for each kind.  Libraries are imported with the first schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.registry.client import AVRO, PROTOBUF, Schema
from kbroker.registry.errors import MissingLibraryError

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.registry.decoded import Decoder


def decoder_of(schema: Schema, folder: Path | None = None) -> Decoder:
    """What decodes payloads of a schema; `folder` is where a Protobuf file of a disk finds what it imports.

    SchemaError."""
    try:
        if schema.kind == AVRO:
            from kbroker.registry.avro import avro_decoder

            return avro_decoder(schema)
        if schema.kind == PROTOBUF:
            from kbroker.registry.protobuf import protobuf_decoder

            return protobuf_decoder(schema, folder)
        from kbroker.registry.json_schema import json_decoder

        return json_decoder(schema)
    except ImportError as error:
        raise MissingLibraryError(error) from None
