"""Nothing for Python."""
