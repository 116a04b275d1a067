"""Connections: sockets, buffers, answers, helper threads."""
