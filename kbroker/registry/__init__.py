"""Schemas of records: a registry's HTTP API, schema files, and what a record says by its schema."""
