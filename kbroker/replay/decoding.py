"""Columns of records decoded by a schema registry or a schema file, on executors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.registry.client import RegistryPlace
from kbroker.registry.display import Display
from kbroker.registry.schema_files import kind_of

if TYPE_CHECKING:
    from pyspark.sql import Column

RESULT = "struct<json: string, schema: string, problem: string>"
NO_SCHEMA = "no schema is named: it begins with neither a schema's id nor its GUID, and no header has one"
_Header = tuple[str, "bytes | None"]


@dataclass(frozen=True, slots=True)
class _By:
    place: RegistryPlace | None
    file: str
    is_key: bool


def decoded(
    column: Column | str,
    *,
    registry: str = "",
    user_info: str = "",
    ca_file: str = "",
    schema_file: str = "",
    is_key: bool = False,
    headers: Column | str | None = None,
) -> Column:
    """A column of keys or values as a struct: `json`, the value by its schema; `schema`, the id, GUID or file; and
    `problem`, why there is no `json`, or what the value breaks of its schema.  Null for null.

    `registry`: its URL, or several of the same one with commas; `user_info` is `user:password`, `ca_file` a PEM of the
    authorities to trust.  `schema_file`: .avsc, .proto or .json, instead of a registry.  Files have to be where tasks
    run.  `headers`: the records' column of headers, where these name the schema.  ValueError.
    """
    from pyspark.sql.functions import col, lit, udf

    if bool(registry) == bool(schema_file):
        raise ValueError("give registry or schema_file")
    if schema_file:
        kind_of(Path(schema_file))
    urls = tuple(url.strip() for url in registry.split(",")) if registry else ()
    by = _By(RegistryPlace(urls, user_info, ca_file) if urls else None, schema_file, is_key)

    def decode(data: bytes | None, rows: Iterable[_Header] | None) -> tuple[str | None, str, str] | None:
        return decode_one(by, data, rows)

    def column_of(given: Column | str) -> Column:
        return col(given) if isinstance(given, str) else given

    return udf(decode, RESULT, useArrow=False)(column_of(column), lit(None) if headers is None else column_of(headers))


def decode_one(by: _By, data: bytes | None, rows: Iterable[_Header] | None) -> tuple[str | None, str, str] | None:
    """One key or value, as RESULT has it."""
    if data is None:
        return None
    headers = [(name, None if value is None else bytes(value)) for name, value in rows or ()]
    shown = _display(by).show("", bytes(data), headers, is_key=by.is_key)
    if shown is None:
        return None, "", NO_SCHEMA
    return shown.text if shown.is_decoded else None, shown.schema, shown.problem


@lru_cache(maxsize=32)
def _display(by: _By) -> Display:
    """One for each worker of Python, whose tasks come one after the other."""
    return Display(by.place, {("", by.is_key): Path(by.file)} if by.file else {})
