"""What the cluster looks like: immutable images, the store that keeps them, and the rules for changing them."""
