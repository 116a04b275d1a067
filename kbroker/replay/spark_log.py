"""What the JVM of Spark's driver prints, in a file instead of on the user's terminal.

Before Spark's settings take effect, the JVM prints a dozen lines to standard error, which it inherits from this
process: therefore standard error is a file while the JVM starts.  The file is removed after a success; if the JVM had
an error, the file stays, and the command's error line names it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SparkLog:
    """The file, and standard error turned to it for a while."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="kbroker-spark-", suffix=".log")
        os.close(handle)
        self.path = Path(name)

    @contextmanager
    def started_here(self) -> Iterator[None]:
        """Within the block, standard error is the file, which processes started there inherit."""
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            with self.path.open("ab") as file:
                os.dup2(file.fileno(), 2)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)

    def discard(self) -> None:
        """Removes the file."""
        self.path.unlink(missing_ok=True)

    def note(self) -> str:
        """A part of a sentence that names the file where it has errors; otherwise it is removed."""
        try:
            text = self.path.read_text(errors="replace")
        except OSError:
            return ""
        if not any(word in text for word in ("ERROR", "Exception", "Error:")):
            self.discard()
            return ""
        return f" (what Spark said is in {self.path})"
