"""Faults as patches, each of which the simulation has to find: `python -m tests.simulation.mutations`."""
