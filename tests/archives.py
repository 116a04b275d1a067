"""Unpacking the archives that are part of the tests, on every Python that the tests run on.

`tarfile`'s filters came with 3.11.4: Debian 12 has 3.11.2.
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath


def unpack(archive: Path, folder: Path) -> None:
    """All members of an archive.  ValueError for one that would lie outside of the folder, or is no file."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, filter="data")
            return
        for member in packed.getmembers():
            place = PurePosixPath(member.name)
            if place.is_absolute() or ".." in place.parts or not (member.isfile() or member.isdir()):
                raise ValueError(f"{archive}: {member.name} does not belong into an archive of the tests")
        packed.extractall(folder)
