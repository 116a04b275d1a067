"""Share groups (KIP-932) as their coordinators see them: members and assignments, and the state of share-partitions."""
