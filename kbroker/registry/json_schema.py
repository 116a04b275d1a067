"""JSON Schema, by jsonschema.  Nothing is fetched: references are those that the registry gave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
from jsonschema.exceptions import SchemaError as BadSchemaError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kbroker.registry.decoded import Decoded
from kbroker.registry.errors import SchemaError, UndecodableError

if TYPE_CHECKING:
    from kbroker.registry.client import Schema
    from kbroker.registry.decoded import Decoder


def json_decoder(schema: Schema) -> Decoder:
    """See `decoded.Decoder`: a payload that breaks its schema is given with the first rule that it breaks.

    SchemaError."""
    try:
        content = json.loads(schema.text)
        known = [(name, Resource.from_contents(json.loads(text), DRAFT7)) for name, text in schema.references]
        validator_class = jsonschema.validators.validator_for(content, default=jsonschema.Draft7Validator)
        validator_class.check_schema(content)
        validator = validator_class(content, registry=Registry().with_resources(known))
    except (ValueError, TypeError, AttributeError, BadSchemaError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema cannot be used: {error}") from None

    def decode(payload: bytes, _path: bytes | None) -> Decoded:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise UndecodableError(f"not JSON: {error}") from None
        try:
            broken = next(iter(validator.iter_errors(value)), None)
        except (Unresolvable, RecursionError, ValueError, TypeError) as error:
            return Decoded(value, f"cannot be held against its schema: {error}")
        return Decoded(value, "" if broken is None else f"{broken.json_path} breaks its schema: {broken.message}")

    return decode
