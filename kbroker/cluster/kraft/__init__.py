"""A broker of a KRaft cluster: it follows the metadata log of controllers that are other nodes (KIP-500, KIP-631)."""
