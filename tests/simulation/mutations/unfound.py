"""Mutations that no history has found, and why: what the simulation has yet to learn, or got no time for."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "followers-get-converted-records": "expected: brokers of a history speak the newest protocol, so that followers "
    "never fetch in a version whose answers are converted",
    "min-isr-ignored-after-append": "expected: histories have min.insync.replicas=1, so that there are always enough",
    "produce-without-deadline": "expected: no commit takes 20 s in a history; a follower that is away leaves the ISR "
    "before",
    "session-order-is-not-kept-by-epoch": "not in 60 histories: clients send each epoch of a session once, in order",
    "start-without-a-last-look": "expected: no process of a history is held up for as long as a start waits",
    "throttle-never-lifted": "expected: histories have no quotas, so that nobody is throttled",
    "diverging-epoch-is-not-told": "not in 300 histories",
    "follower-noted-one-too-high": "not played to an end",
    "followers-of-another-epoch": "not in 200 histories",
    "formats-without-epochs-are-not-cut": "not in 700 histories, though a fifth of their topics and more are old: a "
    "record that only a crashed leader has must be followed by others elsewhere before that one is back",
    "high-watermark-of-the-log-end": "not in 200 histories",
    "lost-wake-up-amid-a-look": "not played to an end",
    "memory-given-back-wakes-nobody": "not in 250 histories: hardly two large frames come at once",
    "no-epoch-fence": "not in 200 histories",
    "no-epoch-fence-at-append": "not played to an end",
    "one-acknowledgement-before-fsync": "not in 300 histories",
    "producers-of-cut-batches": "not played to an end",
    "proposed-isr-does-not-count": "not played to an end",
    "truncation-one-record-short": "not in 300 histories",
    "a-part-of-a-write-is-the-whole": "not played to an end",
    "failed-fsync-is-believed": "not played to an end",
    "retention-takes-half-its-time": "not played to an end",
    "tombstones-go-at-once": "not played to an end",
}
