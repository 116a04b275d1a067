"""Producers with a transactional id, and what has to be seen of their transactions."""
