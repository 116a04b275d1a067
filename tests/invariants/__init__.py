"""Assertions that run in every build."""
