"""Compaction: which logs, when, and the work on one."""
