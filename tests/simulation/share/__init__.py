"""Members of share groups, and what they may be given."""
