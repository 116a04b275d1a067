"""Nothing for Python: see clean_passes.pyx."""
