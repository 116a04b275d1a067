"""Raft among the controllers of a cluster (KIP-595, KIP-853, KIP-996), as machines without I/O, clock or chance."""
