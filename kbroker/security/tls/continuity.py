"""What a new key store may change while the broker runs: not who the broker is (`ssl.allow.dn.changes`,
`ssl.allow.san.changes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography import x509

from kbroker.security.tls.distinguished_name import java_name
from kbroker.security.tls.settings import TlsError

if TYPE_CHECKING:
    from kbroker.security.tls.stores import KeyEntry


def check_continuity(
    old: Sequence[KeyEntry], new: Sequence[KeyEntry], *, may_change_name: bool, may_change_hosts: bool
) -> None:
    """TlsError, in Kafka's words, where clients that check names could no longer take the broker for the same."""
    if len(old) != len(new):
        raise TlsError(
            f"Keystore entries do not match, existing store contains {len(old)} entries, "
            f"new store contains {len(new)} entries"
        )
    for before, after in zip(old, new, strict=True):
        names = [java_name(each.certificate.subject.public_bytes()) for each in (before, after)]
        if not may_change_name and names[0] != names[1]:
            raise TlsError(f"Keystore DistinguishedName does not match: existing={names[0]}, new={names[1]}")
        hosts, hosts_now = (alternative_names(each.certificate) for each in (before, after))
        if not may_change_hosts and not hosts <= hosts_now:
            raise TlsError(f"Keystore SubjectAltNames do not match: existing={sorted(hosts)}, new={sorted(hosts_now)}")


def alternative_names(certificate: x509.Certificate) -> set[str]:
    """The hosts and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in found}
