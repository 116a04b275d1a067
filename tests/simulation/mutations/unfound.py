"""Mutations that no history finds, and why: what the simulation has yet to learn."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "throttle-never-lifted": "histories have no quotas, so that nobody is throttled",
    "min-isr-ignored-after-append": "histories have min.insync.replicas=1, so that there are always enough",
    "produce-without-deadline": "no commit takes 20 s in a history: a follower that is away leaves the ISR before",
}
