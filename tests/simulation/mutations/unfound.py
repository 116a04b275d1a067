"""Mutations that no history has found, and why: what the simulation has yet to learn, or got no time for."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "generation-is-not-stored": "not played to an end",
    "lock-ends-early": "not played to an end",
    "min-isr-ignored-after-append": "not in 80 histories of all kinds: topics of two replicas and "
    "min.insync.replicas=2 can find it",
    "produce-without-deadline": "not played since producers wait for a commit for 100 ms at times, and followers are "
    "away for longer",
    "start-without-a-last-look": "not in some hundred histories, though starts are held up for longer than they wait",
    "settings-of-the-topic-before": "not played to an end; it was found at 166 and 184 as the fault that it was",
    "followers-of-another-epoch": "not in 150 histories in turmoil: those in sync are noted anew all the same, one "
    "outside the ISR joins by its next fetch alone",
    "lost-wake-up-amid-a-look": "not played: nothing that a look does marks a partition: a follower's offset "
    "is noted when its fetch comes",
    "one-acknowledgement-before-fsync": "not played since crashes come right behind acknowledgements",
    "a-part-of-a-write-is-the-whole": "not played to an end",
    "full-disk-forgets-new-logs": "not played to an end",
    "failed-fsync-is-believed": "not played to an end",
    "retention-takes-half-its-time": "not played to an end",
    "tombstones-go-at-once": "not played to an end",
}
