"""A secret of the broker's own that outlives its process: 32 random bytes, `kbroker-secret` in each log directory."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.storage.files.filesystem import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.storage")

FILE_NAME = "kbroker-secret"
SECRET_BYTES = 32


def kept_secret(files: FileSystem, directories: Sequence[LogDir]) -> bytes:
    """What these directories keep, or a new one, which is then written to those that lack it.

    A directory that takes no file is left out: the others keep it.
    """
    found = [_read(files, f"{directory.path}/{FILE_NAME}") for directory in directories]
    secret = next((each for each in found if each is not None), None) or secrets.token_bytes(SECRET_BYTES)
    for directory, there in zip(directories, found, strict=True):
        if there != secret:
            try:
                _write(files, directory.path, secret)
            except OSError as error:
                logger.warning("%s/%s cannot be written: %s", directory.path, FILE_NAME, error)
    return secret


def _read(files: FileSystem, path: str) -> bytes | None:
    try:
        secret = files.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error)
        return None
    if len(secret) != SECRET_BYTES:
        logger.warning("%s has %d bytes instead of %d and is written anew", path, len(secret), SECRET_BYTES)
        return None
    return secret


def _write(files: FileSystem, directory: str, secret: bytes) -> None:
    """As `write_atomic`, for the broker's own user alone."""
    path = f"{directory}/{FILE_NAME}"
    temporary = path + TEMPORARY_SUFFIX
    files.unlink_if_exists(temporary)
    fd = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        files.pwrite(fd, secret, 0)
        files.fsync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    files.fsync_directory(directory)
