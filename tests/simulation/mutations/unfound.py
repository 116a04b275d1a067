"""Mutations that no history has found, and why: what the simulation has yet to learn, or got no time for."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "min-isr-ignored-after-append": "not in 80 histories of all kinds: topics of two replicas and "
    "min.insync.replicas=2 can find it",
    "produce-without-deadline": "not played since producers wait for a commit for 100 ms at times, and followers are "
    "away for longer",
    "start-without-a-last-look": "not in some hundred histories, though starts are held up for longer than they wait",
    "settings-of-the-topic-before": "not played to an end; it was found at 166 and 184 as the fault that it was",
    "one-acknowledgement-before-fsync": "not played since crashes come right behind acknowledgements",
    "full-disk-forgets-new-logs": "not played to an end",
    "tombstones-go-at-once": "not played to an end",
}
