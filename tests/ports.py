"""Loopback ports for servers that tests start."""

from kbroker.testing.ports import free_port

__all__ = ["free_port"]
