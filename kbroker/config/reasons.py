"""Why settings of Kafka have no effect here, or are refused: half sentences by the names that the tables give them."""

from __future__ import annotations

from collections.abc import Mapping

SECURITY = "security"

REASONS: Mapping[str, str] = {
    SECURITY: "kbroker has no such protection; docs/security.md says what it has",
    "authorizer": "kbroker's authorizer has all ACLs before any listener is opened",
    "buffers": "kbroker gives the memory of a write back when it is done and keeps none for the next",
    "class": "kbroker runs no Java; Kafka's own classes are known, docs/security.md has them",
    "connect": "kbroker gives up connecting to another broker after 10 seconds, and tries again soon",
    "control": "kbroker takes a controller's requests on the listener between brokers",
    "kerberos": "tickets and keys are the business of the Kerberos library and its krb5.conf",
    "java": "it names Java classes, and kbroker runs none",
    "in flight": "kbroker sends ZooKeeper what is ready at once, and bounds what one transaction holds",
    "linger": "kbroker writes what coordinators have to write at once and lets nothing wait",
    "metrics": "kbroker shows counters, and the server that scrapes them works out rates",
    "openssl": "kbroker's TLS is OpenSSL, which has no providers and algorithms of Java's",
    "pace": "kbroker paces the bytes of a move while it copies them, without windows that are counted",
    "polling": "kbroker goes on as soon as the transaction before is complete and does not poll",
    "purgatory": "kbroker drops a waiting request when it is done, so that nothing is left to purge",
    "batches": "records wait for the write before them and for nothing else, so that an idle leader writes at once",
    "quorum": "it is a controller's, and kbroker's have no such work",
    "threads": "kbroker serves requests in one event loop, with no pool of threads and no queue before it",
    "tiered": "kbroker has no tiered storage",
    "unreleased": "kbroker serves what Kafka has released",
}
