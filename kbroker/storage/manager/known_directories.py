"""Which log directories a broker has used, written in each of them.

A member of a cluster keeps this nowhere else, so that any of its directories may fail.  A broker with a metadata store
asks the store; the files in its other directories say that there is a store.  `kbroker-directories.json` has the ids of
directories by path; `miss_lost` says what they are for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.filesystem import FileSystem
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.storage")

FILE_NAME = "kbroker-directories.json"


class DirectoryStore(Protocol):
    """What a metadata store knows of log directories."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""

    def directories(self) -> dict[str, str]:
        """The ids of the directories that the broker has used, by path."""

    def remember_directories(self, ids: Mapping[str, str]) -> None:
        """Adds directories to them, or gives them new ids."""


def claim_directories(manager: LogManager, cluster_id: str) -> None:
    """`LogManager.claim` for a broker without a metadata store."""
    files = manager.environment.files
    known = known_directories(files, manager.online_directories())
    _write(manager, {**known, **manager.claim(cluster_id, known)})


def claim_with_store(manager: LogManager, store: DirectoryStore, keeper: str) -> None:
    """`LogManager.claim` for a broker whose metadata store is in the directory `keeper`."""
    store.remember_directories(manager.claim(store.cluster_id, store.directories(), keeper))
    _write(manager, store.directories())


def _write(manager: LogManager, ids: Mapping[str, str]) -> None:
    files = manager.environment.files
    for directory in manager.online_directories():
        if _read(files, directory) != ids:
            try:
                files.write_atomic(f"{directory.path}/{FILE_NAME}", json.dumps(ids).encode())
            except OSError as error:
                manager.failures.report(directory.path, f"writing {FILE_NAME}", error)


def known_directories(files: FileSystem, directories: Sequence[LogDir]) -> dict[str, str]:
    """The ids in the files of all these directories, by path."""
    return {path: each for directory in directories for path, each in _read(files, directory).items()}


def _read(files: FileSystem, directory: LogDir) -> Mapping[str, str]:
    path = f"{directory.path}/{FILE_NAME}"
    try:
        found = json.loads(files.read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and is written anew: %s", path, error)
        return {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        logger.warning("%s is not kbroker's and is written anew", path)
        return {}
    return found
