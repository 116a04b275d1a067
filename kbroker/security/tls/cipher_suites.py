"""Cipher suites by the names that Java and the standard have, as OpenSSL wants them.

TLS_AES_128_GCM_SHA256                     TLS 1.3: the same name
TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256      ECDHE-RSA-AES128-GCM-SHA256
TLS_RSA_WITH_AES_128_CBC_SHA               AES128-SHA
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kbroker.security.tls.settings import TlsError

_NAME = re.compile(r"(?:TLS|SSL)_(\w+?)_WITH_(\w+?)_(SHA256|SHA384|SHA|CCM|CCM_8)")
_CIPHERS = {
    "AES_128_GCM": "AES128-GCM",
    "AES_256_GCM": "AES256-GCM",
    "AES_128_CBC": "AES128",
    "AES_256_CBC": "AES256",
    "CHACHA20_POLY1305": "CHACHA20-POLY1305",
    "CAMELLIA_128_CBC": "CAMELLIA128",
    "CAMELLIA_256_CBC": "CAMELLIA256",
    "ARIA_128_GCM": "ARIA128-GCM",
    "ARIA_256_GCM": "ARIA256-GCM",
}
_KEY_EXCHANGES = {"RSA": "", "ECDHE_RSA": "ECDHE-RSA-", "ECDHE_ECDSA": "ECDHE-ECDSA-", "DHE_RSA": "DHE-RSA-"}
TLS13 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
# Without forward secrecy, or without encryption worth the name, a suite must be asked for.
DEFAULT_TLS12 = (
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:"
    "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "DHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256"
)


def split(names: Sequence[str]) -> tuple[str, str]:
    """The suites of TLS 1.3 and those of TLS 1.2, each as OpenSSL's list; empty where there are none of them.

    TlsError for a name that is no suite's or that OpenSSL has not."""
    newer = [name for name in names if name in TLS13]
    older = [openssl_name(name) for name in names if name not in TLS13]
    return ":".join(newer), ":".join(older)


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; its own names are taken, too.  TlsError."""
    if not name.startswith(("TLS_", "SSL_")):
        if re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)+", name) is None:
            raise TlsError(f"ssl.cipher.suites: {name} is not the name of a cipher suite")
        return name
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in _KEY_EXCHANGES or match[2] not in _CIPHERS:
        raise TlsError(f"ssl.cipher.suites: OpenSSL has no {name}")
    cipher = _CIPHERS[match[2]]
    digest = "" if cipher.startswith("CHACHA20") else f"-{match[3]}"
    return f"{_KEY_EXCHANGES[match[1]]}{cipher}{digest}"
