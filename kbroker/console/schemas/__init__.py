"""Schemas of the registry that the broker's settings name: seen, compared, and records produced by them."""
