"""TLS: key and trust stores, the settings of listeners, contexts that follow their files, names of certificates."""
