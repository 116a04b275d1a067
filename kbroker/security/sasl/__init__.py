"""SASL: JAAS settings, the mechanisms of both ends as machines of bytes, and the exchange of a server's connection."""
