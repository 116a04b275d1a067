"""Parquet files that are there when they are complete, and not before.

Spark writes into a directory beside the wanted one; when it is done, that one is renamed.  A run that fails or is
killed leaves nothing under the wanted name: at most a directory `.NAME.incomplete-…`, which cannot be taken for a
result.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs

from kbroker.replay.traces.errors import TraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("parquet", "json")


def write_complete(frame: DataFrame, path: str, *, overwrite: bool = False, file_format: str = "parquet") -> None:
    """Writes a DataFrame as a directory of files.  Raises TraceError when there is something at `path` already."""
    with complete_directory(path, overwrite=overwrite) as directory:
        frame.write.format(file_format).save(directory)


@contextmanager
def complete_directory(path: str, *, overwrite: bool = False) -> Iterator[str]:
    """A directory to write into, which gets the name `path` when the block ends without an error."""
    system, name = _system(path)
    check_free(path, overwrite=overwrite)
    parent, _, last = name.rstrip("/").rpartition("/")
    mark = uuid.uuid4().hex[:12]
    working, replaced = f"{parent}/.{last}.incomplete-{mark}", f"{parent}/.{last}.replaced-{mark}"
    prefix = path.partition("://")[0] + "://" if "://" in path else "file://"
    try:
        yield f"{prefix}{working}"
        if _exists(system, name):
            system.move(name, replaced)
        system.move(working, name)
    except BaseException:
        _delete(system, working)
        raise
    _delete(system, replaced)


def check_free(path: str, *, overwrite: bool = False) -> None:
    """Raises TraceError when `path` cannot become a new directory."""
    system, name = _system(path)
    if _exists(system, name) and not overwrite:
        raise TraceError(f"{path} is there already: choose another name, or say --overwrite")
    parent = name.rstrip("/").rpartition("/")[0]
    if parent and not _exists(system, parent):
        raise TraceError(f"{path}: there is no directory {parent}")
    if isinstance(system, pyarrow.fs.LocalFileSystem) and not os.access(parent or "/", os.W_OK | os.X_OK):
        raise TraceError(f"{path}: {parent or '/'} may not be written by this user")


def _system(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    if "://" in path:
        return pyarrow.fs.FileSystem.from_uri(path)  # type: ignore[no-any-return]
    return pyarrow.fs.LocalFileSystem(), str(Path(path).absolute())


def _exists(system: pyarrow.fs.FileSystem, name: str) -> bool:
    return bool(system.get_file_info(name).type != pyarrow.fs.FileType.NotFound)


def _delete(system: pyarrow.fs.FileSystem, name: str) -> None:
    kind = system.get_file_info(name).type
    if kind == pyarrow.fs.FileType.Directory:
        system.delete_dir(name)
    elif kind == pyarrow.fs.FileType.File:
        system.delete_file(name)
