"""Authentication and authorization: the parts by themselves, and over a broker."""
