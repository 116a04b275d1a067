"""Mapping files for public trace sets; their comments say where the traces come from and under which licence."""
