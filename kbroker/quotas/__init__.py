"""Client quotas: how much of a broker a user, a client id or an address may use (KIP-13, 55, 124, 219, 599, 612)."""
