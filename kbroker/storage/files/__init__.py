"""The one way to files: descriptors, checkpoints, failures of directories."""
