"""A small file of a log that the loop replaces and a thread makes durable.

    stage(data)    loop:    the new content goes into `<name>.tmp`, without waiting for the disk
    run(files)     thread:  fsync of that, then the rename; the fsync of the directory is the caller's

So the name always refers to durable content, old or new, whole.  A `stage` while a thread waits for its fsync
supersedes the earlier content, and the thread goes on with the new one.  `withdraw` is called before the directory is
renamed: afterwards nothing is put in place under the old name.
"""

from __future__ import annotations

import threading

from kbroker.storage.files.filesystem import TEMPORARY_SUFFIX, FileSystem

_NOTHING = 0


class ReplacedFile:
    """One file.  `stage`, `withdraw` and `moved_to` belong to the loop, which waits for no more than a rename."""

    __slots__ = ("_files", "_generation", "_lock", "_staged", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._generation = 0
        self._staged = _NOTHING
        self.path = path

    @property
    def is_staged(self) -> bool:
        """Whether there is content that is not in place yet."""
        return self._staged != _NOTHING

    def stage(self, data: bytes) -> None:
        """The content that the file gets next."""
        with self._lock:
            self._staged = _NOTHING
            self._files.write_file(self.path + TEMPORARY_SUFFIX, data, sync=False)
            self._generation += 1
            self._staged = self._generation

    def run(self, files: FileSystem) -> None:
        """Puts what is staged in place, once it is durable."""
        while (staged := self._staged) != _NOTHING:
            files.sync_path(self.path + TEMPORARY_SUFFIX)
            with self._lock:
                if self._staged == staged:
                    self._put_in_place()

    def put_in_place(self) -> bool:
        """The same where everything on the file system has just been made durable; whether there was something."""
        with self._lock:
            if self._staged == _NOTHING:
                return False
            self._put_in_place()
            return True

    def _put_in_place(self) -> None:
        self._files.rename(self.path + TEMPORARY_SUFFIX, self.path)
        self._staged = _NOTHING

    def withdraw(self) -> bool:
        """Drops staged content: nothing is put in place before the next `stage`.  Whether there was some."""
        with self._lock:
            was_staged, self._staged = self.is_staged, _NOTHING
            return was_staged

    def moved_to(self, path: str) -> None:
        """The file has another name from now on; after `withdraw`."""
        with self._lock:
            self.path = path
