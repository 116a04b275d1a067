"""Delegation tokens (KIP-48): their HMACs, and the changes of the metadata that requests ask for."""

from __future__ import annotations

import base64
import hmac


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """What shows that a client was given the token."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """An HMAC as clients use it: the password of a SCRAM login whose user is the token's id."""
    return base64.b64encode(token).decode()
