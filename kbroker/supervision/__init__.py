"""`kbroker start --workers N`: the process that starts, watches and stops the workers of a host."""
