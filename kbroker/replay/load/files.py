"""State in files: JSON that is whole or not there, and locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbroker.replay.load.errors import LoadError

_POLL_S = 0.05


def local_path(text: str) -> Path:
    """A directory that the driver and all executors see.  LoadError for a place on another file system."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text).absolute()
    if scheme != "file":
        raise LoadError(f"{text}: only paths of a file system that the driver and the executors share, no {scheme}://")
    return Path(rest).absolute()


def read_json(path: Path) -> Any:
    """None where there is no file.  LoadError for one that is no JSON."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LoadError(f"{path} is no JSON ({error}): it was changed by something else; bring it back") from None


def write_json(path: Path, value: object) -> None:
    """Replaces the file.  After a crash at any point there is the old content or the new, whole."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with temporary.open("w") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames within a directory last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, wait_s: float, busy: str) -> Iterator[None]:
    """Holds a lock that the system releases when the process ends, however it ends.  LoadError(busy) after `wait_s`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LoadError(busy) from None
                # The system has no lock with a time limit.
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
