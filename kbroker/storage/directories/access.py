"""Why a user may not write a log directory, as a sentence, and the command that mends it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple


class Refusal(NamedTuple):
    """What is wrong with a directory, to go behind its name, and a command for its machine's administrator."""

    reason: str
    command: str


def _is_seen(path: Path) -> bool:
    """Whether something is there; not where a directory above may not be searched."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def refused_below(path: str) -> Refusal | None:
    """Of the first file or directory below one that this process may not write, as after a start by root."""
    user = os.geteuid()
    for directory, names, files in os.walk(path):
        for name, wanted in (*((each, os.W_OK | os.X_OK) for each in names), *((each, os.W_OK) for each in files)):
            entry = Path(directory, name)
            if not os.access(entry, wanted) and _is_seen(entry):
                return Refusal(
                    f"{entry} {access_refused(str(entry)).reason}", f"sudo chown -R {user} {shlex.quote(path)}"
                )
    return None


def access_refused(path: str) -> Refusal:
    """Why this process may not write a directory or something in it, or make it."""
    there = Path(path)
    nearest = next(each for each in (there, *there.parents) if _is_seen(each))
    user = os.geteuid()
    owner = nearest.stat().st_uid
    whose = f": it belongs to user {owner}" if owner != user else ""
    if nearest != there:
        make = f"sudo install -d -o {user} {shlex.quote(path)}"
        if os.access(nearest, os.X_OK):
            return Refusal(f"cannot be made: {nearest} may not be written by user {user}{whose}", make)
        return Refusal(
            f"cannot be reached: {nearest} may not be searched by user {user}{whose}",
            f"sudo chmod a+x {shlex.quote(str(nearest))} && {make}",
        )
    return Refusal(f"may not be written by user {user}{whose}", f"sudo chown -R {user} {shlex.quote(path)}")


def log_directory_refused(path: str) -> str:
    """Why a log directory cannot be used by this process, and what mends that, as a sentence."""
    refusal = access_refused(path)
    return (
        f"log directory {path} {refusal.reason}: `{refusal.command}`, for a container on its host, with the directory "
        "that is mounted there"
    )
