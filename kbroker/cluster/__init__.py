"""Who decides about the cluster: the controller's interface, its pure decisions, and the one that runs on this node."""
