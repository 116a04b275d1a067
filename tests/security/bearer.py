"""An issuer of bearer tokens, for tests."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

NOW = 1_700_000_000


class Issuer:
    """Has a key of each kind."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
            "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
            "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "okp"}),
        }

    def jwks(self) -> bytes:
        """The public keys."""
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys.values()]}).encode()

    def token(self, claims: dict[str, Any], algorithm: str = "RS256", **header: Any) -> str:
        """A signed token; claims with None are left out."""
        key = self.keys[algorithm]
        full = {"sub": "alice", "iat": NOW, "exp": NOW + 60, **claims}
        said = {name: value for name, value in full.items() if value is not None}
        names = {name: value for name, value in {"kid": key["kid"], **header}.items() if value is not None}
        return jwt.encode({"alg": algorithm, **names}, said, key, algorithms=[algorithm])


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def signed_with_text(secret: bytes, claims: dict[str, Any]) -> str:
    """A token whose signature is by a secret that anybody may know."""
    body = unsigned({"alg": "HS256", "kid": "rsa"}, claims).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), "sha256")).rstrip(b"=").decode()
    return f"{body}.{signature}"
