"""Produce and Fetch from the request's bytes to the answer's."""
