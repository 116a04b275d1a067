"""File regions and the system calls on files."""
