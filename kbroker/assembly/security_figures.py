"""What a scrape of the metrics shows of TLS, SASL and the authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metrics.families import Values
    from kbroker.security.listeners import ListenersSecurity
    from kbroker.security.sasl.listeners import Sasl


def security_figures(
    security: ListenersSecurity, sasl: Sasl, clock: Clock, acls: int, denials: Mapping[tuple[str, str], int]
) -> Values:
    """The values of their families in `metrics.exposition`.  `denials`: how often clients were refused, by resource and
    operation."""
    now_ms = clock.now_ms()
    logins: dict[tuple[str, ...], float] = {
        (name, mechanism, outcome): float(count)
        for name, stats in sasl.stats.items()
        for outcome, counts in (
            ("succeeded", stats.succeeded),
            ("failed", stats.failed),
            ("again", stats.succeeded_again),
            ("failed_again", stats.failed_again),
        )
        for mechanism, count in counts.items()
    }
    return {
        "kbroker_tls_handshakes": {(each.name,): float(each.handshakes) for each in security.tls},
        "kbroker_tls_handshakes_failed": {
            (each.name, kind): float(count) for each in security.tls for kind, count in each.failures.items()
        },
        "kbroker_tls_kernel_connections": {(): float(security.kernel_connections)},
        "kbroker_tls_certificate_left_seconds": {(each.name,): (each.ends_ms - now_ms) / 1000 for each in security.tls},
        "kbroker_tls_store_changes": {
            (each.name, outcome): float(count)
            for each in security.tls
            for outcome, count in (("taken", each.reloads), ("failed", each.reload_failures))
        },
        "kbroker_authentications": logins,
        "kbroker_acls": {(): float(acls)},
        "kbroker_authorization_denied": {each: float(count) for each, count in denials.items()},
        "kbroker_authentications_expired": {(name,): float(stats.expired_count) for name, stats in sasl.stats.items()},
    }
