"""A JSON document in a folder without locks and atomic replacement: each change is a new file, the highest counts.

    _manifest.0000000012.json

A version is created exclusively, so of two runs that go on from the same one, the first goes on and the other fails.
A run begins with a version of its own: from then on a run that began before can publish nothing, and what it left
behind can be removed.  A version that is not whole JSON is one whose writer died in it, and counts as not there.

A writer looks for higher versions behind its own: one that slept so long that its number was free again finds them.
"""

from __future__ import annotations

import json
import re
from typing import Protocol

from kbroker.replay.load.errors import LoadError

_DIGITS = 10
# Readers that have listed the folder may still open the version before the last.
_KEPT = 2
_TRIES = 10


class Folder(Protocol):
    """What versions need of a folder; see `hadoop_folder`."""

    uri: str

    def names(self) -> list[str]:
        """What is directly in it."""

    def read(self, path: str) -> str:
        """A file's text.  FileNotFoundError."""

    def create(self, path: str, text: str) -> bool:
        """A new file; False where there is one."""

    def delete(self, path: str) -> None:
        """A file."""


class Versions:
    """The versions of one document, `name`, in a folder."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._own = re.compile(re.escape(name) + rf"\.(\d{{{_DIGITS}}})\.json")
        self._number = 0

    def latest(self) -> object:
        """The document as it is; None where there is none.  What is published next goes on from here."""
        for _ in range(_TRIES):
            numbers = self._numbers()
            self._number = numbers[-1] if numbers else 0
            found, is_gone = None, False
            for number in reversed(numbers):
                try:
                    found = json.loads(self._folder.read(self._file(number)))
                except FileNotFoundError:
                    is_gone = True  # A writer has gone on since the folder was listed.
                    break
                except ValueError:
                    continue
                return found
            if not is_gone:
                return None
        raise LoadError(f"{self._folder.uri} changes too quickly to be read: is another run writing there?")

    def publish(self, value: object) -> None:
        """Replaces the document that `latest` gave, or that was published last.  LoadError where another run did."""
        number = self._number + 1
        text = json.dumps(value, separators=(",", ":")) + "\n"
        if not self._folder.create(self._file(number), text) or self._numbers()[-1] != number:
            raise LoadError(
                f"another run has begun to write to {self._folder.uri} and goes on in place of this one; what this one "
                "had not finished counts as not done"
            )
        self._number = number
        for old in self._numbers():
            if old <= number - _KEPT:
                self._folder.delete(self._file(old))

    def is_version(self, name: str) -> bool:
        """Whether a file of the folder is one of the document's."""
        return self._own.fullmatch(name) is not None

    def _numbers(self) -> list[int]:
        return sorted(int(found[1]) for name in self._folder.names() if (found := self._own.fullmatch(name)))

    def _file(self, number: int) -> str:
        return f"{self._name}.{number:0{_DIGITS}d}.json"
