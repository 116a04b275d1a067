"""All logs of a broker: start and stop, checkpoints, flushes, retention."""
