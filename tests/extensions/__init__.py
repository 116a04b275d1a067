"""Compiled entries into the product's C for tests and benchmarks alone; `make test` builds them."""
