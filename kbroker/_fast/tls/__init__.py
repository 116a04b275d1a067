"""TLS of connections: sessions of OpenSSL, their socket part, and what the kernel encrypts."""
