"""Clients of group coordinators, and what their answers have to be."""
