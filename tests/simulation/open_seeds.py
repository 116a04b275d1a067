"""Seeds whose histories fail for a reason that is not understood, or not mended yet, with what is known of it.

They are played and shown like all others, and do not keep a change out.  A seed is another history after each change of
what is drawn: one that passes is to be taken out.
"""

from __future__ import annotations

_MOVE = "a move between directories that was called off leaves its error and a job of an executor as garbage"

OPEN: dict[int, str] = {
    577: _MOVE,
    728: "a log whose fsync failed keeps the error in `LocalLog._flushing`, and the error the log",
    837: _MOVE,
    981: _MOVE,
}
