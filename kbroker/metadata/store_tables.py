"""The tables of the metadata store as SQL: what each schema version adds to the one before it."""

from __future__ import annotations

_SCHEMA_1 = """
CREATE TABLE cluster (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    topic_id BLOB PRIMARY KEY CHECK (length(topic_id) = 16),
    name TEXT NOT NULL UNIQUE
) WITHOUT ROWID;
CREATE TABLE partitions (
    topic_id BLOB NOT NULL REFERENCES topics ON DELETE CASCADE,
    partition INTEGER NOT NULL CHECK (partition >= 0),
    leader INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    partition_epoch INTEGER NOT NULL,
    replicas TEXT NOT NULL,
    isr TEXT NOT NULL,
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;
CREATE TABLE topic_configs (
    topic_id BLOB NOT NULL REFERENCES topics ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (topic_id, name)
) WITHOUT ROWID;
"""
_SCHEMA_2 = """
CREATE TABLE broker_configs (
    broker TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (broker, name)
) WITHOUT ROWID;
"""

_SCHEMA_3 = """
CREATE TABLE resource_configs (
    kind INTEGER NOT NULL,
    resource TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (kind, resource, name)
) WITHOUT ROWID;
INSERT INTO resource_configs SELECT 4, broker, name, value FROM broker_configs;
DROP TABLE broker_configs;
ALTER TABLE partitions ADD COLUMN adding_replicas TEXT NOT NULL DEFAULT '';
ALTER TABLE partitions ADD COLUMN removing_replicas TEXT NOT NULL DEFAULT '';
ALTER TABLE partitions ADD COLUMN elr TEXT NOT NULL DEFAULT '';
ALTER TABLE partitions ADD COLUMN last_known_elr TEXT NOT NULL DEFAULT '';
"""
SCHEMAS = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3)
