"""How much a heartbeat of a group of the newer protocols may name: what is looked at in one turn of the loop.

Kafka has no bound but the size of a request.  A subscription to 100,000 topics by name took the loop for up to 0.5 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

from kbroker.errors import InvalidRequestError

#: Topics that a member subscribes to by name; of a streams group tasks, topics, settings and tags, all together.
MOST_NAMES = 10_000
#: Partitions that a member says it owns: far above what one consumer can fetch.
MOST_PARTITIONS = 100_000


def check_count(lists: Iterable[Sized], most: int, what: str) -> None:
    """InvalidRequestError where lists have more elements in all; `what` these are."""
    if sum(map(len, lists)) > most:
        raise InvalidRequestError(f"A heartbeat may name at most {most} {what} in all.")
