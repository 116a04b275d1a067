"""Log directories: locks, placement, moves, strays, what is missing."""
