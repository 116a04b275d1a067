"""Metrics of listeners that encrypt, of clients that log in, and of what they may not.  Rows as in `families`."""

from __future__ import annotations

from kbroker.metrics.families import table

_ROWS = """
kbroker_tls_handshakes|counter|listener|Handshakes that clients have come through.
kbroker_tls_handshakes_failed|counter|listener,kind|
    Handshakes that came to nothing: failed, refused, plaintext (the client does not speak TLS), ended, slow, oversized.
kbroker_tls_kernel_connections|counter||Connections whose records the kernel has encrypted.
kbroker_tls_certificate_left_seconds|gauge|listener|
    Time until the first certificate that the listener shows runs out; negative behind its end.
kbroker_tls_store_changes|counter|listener,outcome|
    Changed key and trust stores that a listener has taken, and those that it could not use (failed).
kbroker_authentications|counter|listener,mechanism,outcome|
    Logins by SASL: succeeded, failed, and those of open connections: again, failed_again.
kbroker_acls|gauge||ACLs of the cluster.
kbroker_authorization_denied|counter|resource,operation|
    What clients asked for and were refused by the authorizer, by what they would have done to what (topic, group, …).
kbroker_authentications_expired|counter|listener|
    Connections that were closed as their clients did not log in again in time.
"""

FAMILIES = table(_ROWS)
