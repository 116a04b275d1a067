"""Nothing for Python: see clean_output.pyx."""
