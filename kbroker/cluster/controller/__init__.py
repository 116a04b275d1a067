"""The controller: what brokers and clients ask of it, and the active controller of a quorum of kbrokers."""
