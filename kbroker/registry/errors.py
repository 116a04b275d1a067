"""What may go wrong between a record and what it says."""

from __future__ import annotations


class SchemaError(Exception):
    """A schema that cannot be had or used; the text is for people and has no secret."""


class UnknownSchemaError(SchemaError):
    """The registry has no schema of that id."""


class RegistryAwayError(SchemaError):
    """The registry gives no answer that means anything; it may later."""


class MissingLibraryError(SchemaError):
    """The extra `schemas` is not installed."""

    def __init__(self, error: ImportError) -> None:
        super().__init__(f"this takes the extra `schemas` (docs/schemas.md): {error}")


class UndecodableError(Exception):
    """Bytes that are not what their schema says."""


class UnencodableError(ValueError):
    """A value that its schema does not allow; the text is for a person."""
