"""Share groups (KIP-932) where their records are: the leader's side of a partition that groups share."""
