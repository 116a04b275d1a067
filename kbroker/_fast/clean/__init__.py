"""Compaction over bytes."""
