"""How a broker is in a cluster: one joint, `cluster_membership`, and a file for each kind of cluster."""
