"""The table of client quotas in the metadata store:

    client_quotas(entity, name, value)        entity: JSON, [type, name or null] pairs sorted by type; value: JSON

Added to stores that have none when they are opened; a kbroker that does not know it leaves it alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from kbroker.metadata.image import QuotaEntity

CREATE = """
CREATE TABLE IF NOT EXISTS client_quotas (
    entity TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (entity, name)
) WITHOUT ROWID
"""


def read(connection: sqlite3.Connection) -> dict[QuotaEntity, dict[str, float]]:
    """All quotas by entity.  ValueError, with the row, for what is none."""
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    for text, name, value in connection.execute("SELECT entity, name, value FROM client_quotas"):
        try:
            entity = tuple((str(kind), each) for kind, each in json.loads(text))
            quotas.setdefault(entity, {})[name] = float(json.loads(value))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the quota {name} of {text}: {error}") from error
    return quotas


def write(connection: sqlite3.Connection, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
    """Replace all quotas of entities."""
    for entity, values in changes.items():
        text = json.dumps(entity)
        connection.execute("DELETE FROM client_quotas WHERE entity = ?", (text,))
        connection.executemany(
            "INSERT INTO client_quotas VALUES (?, ?, ?)",
            [(text, name, json.dumps(value)) for name, value in values.items()],
        )
