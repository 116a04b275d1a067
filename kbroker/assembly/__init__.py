"""Puts the parts of a broker together, group by group; `kbroker.broker` has the order of start and stop."""
