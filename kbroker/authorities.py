"""Whom Python's clients of HTTPS trust: a registry's, an identity provider's, another console's.

Since 3.13 Python refuses certificates that lack identifiers of keys, as those of many companies do and as Java and
librdkafka take them.  Here every release takes the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def trusting(ca_file: str = "") -> ssl.SSLContext:
    """`ca_file`: a PEM of the authorities, the system's without.  OSError for one that cannot be read."""
    # A broker without such clients starts without it.
    import ssl

    context = ssl.create_default_context(cafile=ca_file or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
