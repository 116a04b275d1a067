"""The archives that are published."""

from __future__ import annotations

import fnmatch
import functools
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def tracked() -> list[str]:
    """The files that git has; of a tree without its history those that git would not leave out."""
    git = shutil.which("git")
    command = (git or "false", "ls-files", "-z")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]
    ignored: list[str] = []
    found = []
    for folder, below, files in os.walk(ROOT):
        place = Path(folder).relative_to(ROOT)
        if ".gitignore" in files:
            for line in Path(folder, ".gitignore").read_text().split():
                anchored = "/" in line.rstrip("/")
                ignored.append(str(place / line.strip("/")) if anchored else line)
        kept = {name for name in (*below, *files) if not _is_ignored(str(place / name), ignored)}
        below[:] = sorted(kept & set(below) - {".git"})
        found += [str(place / name) for name in sorted(kept & set(files))]
    return found


def _is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether a pattern names this file or folder, its whole path or the last part of it."""
    names = (path, path.rpartition("/")[2])
    return any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for name in names for pattern in patterns)
