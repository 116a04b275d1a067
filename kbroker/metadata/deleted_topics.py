"""The ids of topics that were deleted last, in the metadata store.

A topic is deleted from the store first, then its directories are renamed.  After a crash in between, the next start
finds directories of a topic that it does not know: by these ids it tells them from those of a topic that the store has
lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

CREATE = "CREATE TABLE IF NOT EXISTS deleted_topics (number INTEGER PRIMARY KEY, topic_id BLOB NOT NULL)"
MOST = 100_000
"""So many are remembered: what one crash may leave."""

INSERT = "INSERT INTO deleted_topics (topic_id) VALUES (?)"
FORGET = "DELETE FROM deleted_topics WHERE number <= (SELECT max(number) FROM deleted_topics) - ?"


def statements(topic_ids: Sequence[bytes]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """What remembers these topics, each with its rows."""
    return [(INSERT, [(topic_id,) for topic_id in topic_ids]), (FORGET, [(MOST,)])]


def read(connection: sqlite3.Connection) -> frozenset[bytes]:
    """All that are remembered."""
    return frozenset(bytes(topic_id) for (topic_id,) in connection.execute("SELECT topic_id FROM deleted_topics"))
