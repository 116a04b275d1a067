"""Drivers: client libraries behind one line-based protocol (see `tests/compat/client.py`)."""
