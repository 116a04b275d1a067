"""Nothing for Python: see clean_write.pyx."""
