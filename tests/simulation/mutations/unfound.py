"""Mutations that no history has found, and why: what the simulation has yet to learn, or got no time for."""

from __future__ import annotations

UNFOUND: dict[str, str] = {
    "workers-that-live-on-say-nothing": "not played to an end since a worker may end when worker 1 comes back",
    "refused-before-it-is-answered": "not played to an end; it was found at 3 as the fault that it was",
    "min-isr-ignored-after-append": "not in some dozen histories of clusters since topics of two replicas are judged",
    "settings-of-the-topic-before": "not played to an end; it was found at 166 and 184 as the fault that it was",
    "full-disk-forgets-new-logs": "not played to an end",
    "send-over-the-loops-descriptor": "not played to an end",
    "worker-that-is-back-is-taken-for-gone": "not played to an end; it was found at 62 as the fault that it was",
    "deleted-while-a-worker-starts": "not played to an end; it was found at 3532 as the fault that it was",
    "settings-without-a-controller-get-no-answer": "not played to an end; it was found at 103 as the fault that it was",
    "deferred-requests-are-those-of-others": "not played to an end",
    "a-worker-decides-by-what-it-knows": "not played to an end; it was found at 164 of histories of workers alone",
    "a-cut-log-takes-others-in-its-epoch": "not played to an end; it was found at 3279 as the fault that it was",
    "waits-for-a-partition-that-has-left": "not played to an end; it was found at 4367 as the fault that it was",
    "share-partition-outlives-its-epoch": "not played to an end",
    "share-state-of-an-older-leader-counts": "not played to an end",
    "a-sync-ends-another-generation": "changes nothing: a rebalance ends what waits for the assignments before it",
}
