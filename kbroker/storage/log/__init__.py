"""One partition's log: segments, indexes, producers, epochs, appends, look-ups."""
