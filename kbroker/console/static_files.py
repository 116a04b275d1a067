"""The files of the pages, read when the first viewer comes and then kept, with their compressed form.

A browser asks with the tag of what it has each time, so that after an upgrade none mixes old files with new ones.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
START = "index.html"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file; `tag` is its ETag."""

    body: bytes
    gzipped: bytes
    content_type: str
    tag: str


def read_static_files() -> dict[str, StaticFile]:
    """All files by name.  It waits for the disk."""
    found = {}
    for entry in files("kbroker.console").joinpath("static").iterdir():
        kind = TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None and entry.is_file():
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[entry.name] = StaticFile(body, gzip.compress(body, 9, mtime=0), kind, tag)
    return found
