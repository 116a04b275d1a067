"""The check that each request passes before it is answered."""
