"""Seeds whose histories fail for a reason that is not understood, or not mended yet, with what is known of it.

They are played and shown like all others, and do not keep a change out.  A seed is another history after each change of
what is drawn: one that passes is to be taken out.
"""

from __future__ import annotations

OPEN: dict[int, str] = {
}
