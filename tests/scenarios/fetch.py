"""Fetch: offsets, limits, waiting, epochs, and the life of an incremental session."""

from __future__ import annotations

from typing import Any

from tests.scenarios.batches import T0, Batch
from tests.scenarios.normal import ZERO_UUID
from tests.scenarios.session import Session, scenario
from tests.scenarios.topics import BOGUS_ID

MEGABYTE = 1 << 20


def place(partition: int = 0, offset: int = 0, limit: int = MEGABYTE, **values: Any) -> dict[str, Any]:
    """One partition to fetch."""
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limit, **values}


def wanted(topic: str | bytes, *places: dict[str, Any]) -> dict[str, Any]:
    """One topic to fetch, by name or by id."""
    name = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    return {**name, "partitions": list(places or [place()])}


def fetch(s: Session, step: str, *topics: dict[str, Any], version: int = 11, **values: Any) -> Any:
    """Fetch without waiting, unless said otherwise, and record the answer."""
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MEGABYTE, **values}
    return s.ask(step, "Fetch", version, topics=list(topics), **settings)


@scenario
def in_each_version(s: Session) -> None:
    topic_id = s.create("fetch-versions")
    s.fill("fetch-versions", Batch([(b"a", b"1"), (b"b", b"2")]), Batch([(b"c", b"3")]))
    for version in range(4, 19):
        topic: str | bytes = topic_id if version >= 13 else "fetch-versions"
        fetch(s, f"v{version}", wanted(topic), version=version)


@scenario
def offsets(s: Session) -> None:
    s.create("fetch-offsets")
    s.fill("fetch-offsets", *[Batch([(b"k", b"v")] * 3, timestamps=[T0 + n] * 3) for n in range(3)])
    for step, offset in (("start", 0), ("middle of a batch", 4), ("last", 8), ("end", 9), ("past the end", 10)):
        fetch(s, step, wanted("fetch-offsets", place(0, offset)))
    fetch(s, "negative", wanted("fetch-offsets", place(0, -1)))
    fetch(s, "far past the end", wanted("fetch-offsets", place(0, 2**62)))
    s.create("fetch-empty")
    fetch(s, "empty", wanted("fetch-empty"))
    fetch(s, "empty, past the end", wanted("fetch-empty", place(0, 1)))


@scenario
def from_what_is_not(s: Session) -> None:
    topic_id = s.create("fetch-known")
    fetch(s, "unknown topic", wanted("fetch-never"))
    fetch(s, "unknown partition", wanted("fetch-known", place(7)))
    fetch(s, "negative partition", wanted("fetch-known", place(-1)))
    fetch(s, "unknown id", wanted(BOGUS_ID), version=13)
    fetch(s, "no id", wanted(ZERO_UUID), version=13)
    fetch(s, "unknown partition by id", wanted(topic_id, place(7)), version=13)
    fetch(s, "known and unknown", wanted("fetch-known"), wanted("fetch-never"))
    fetch(s, "known and unknown by id", wanted(topic_id), wanted(BOGUS_ID), version=13)
    fetch(s, "an error does not wait", wanted("fetch-never"), max_wait_ms=20_000, min_bytes=1)
    fetch(s, "nothing")
    fetch(s, "a partition twice", wanted("fetch-known", place(), place()))


@scenario
def limits(s: Session) -> None:
    """The first batch comes whole whatever the limit; after it, limits hold."""
    s.create("fetch-limits", 2)
    batches = [Batch([(b"k", b"x" * 500)]) for _ in range(4)]
    s.fill("fetch-limits", *batches)
    s.fill("fetch-limits", *batches, partition=1)
    size = len(batches[0].encoded())
    both = wanted("fetch-limits", place(0), place(1))
    fetch(s, "one byte in all", both, max_bytes=1)
    fetch(s, "none in all", both, max_bytes=0)
    fetch(s, "room for two", wanted("fetch-limits"), max_bytes=2 * size)
    fetch(s, "room for two and a bit", wanted("fetch-limits"), max_bytes=2 * size + 100)
    fetch(s, "one byte per partition", wanted("fetch-limits", place(0, 0, 1), place(1, 0, 1)))
    fetch(s, "none per partition", wanted("fetch-limits", place(0, 0, 0), place(1, 0, 0)))
    fetch(s, "a batch and a half per partition", wanted("fetch-limits", place(0, 0, size + size // 2)))
    fetch(s, "two batches per partition", wanted("fetch-limits", place(0, 0, 2 * size), place(1, 0, 2 * size)))
    fetch(s, "three in all over two", both, max_bytes=3 * size)
    fetch(s, "negative in all", both, max_bytes=-1)


@scenario
def waiting(s: Session) -> None:
    """A fetch waits for bytes, and wakes when another client writes them."""
    s.create("fetch-waiting")
    fetch(s, "times out empty", wanted("fetch-waiting"), max_wait_ms=50, min_bytes=1)
    fetch(s, "min bytes 0", wanted("fetch-waiting"), max_wait_ms=20_000, min_bytes=0)
    asked = {"max_wait_ms": 20_000, "min_bytes": 1, "max_bytes": MEGABYTE, "topics": [wanted("fetch-waiting")]}
    with s.second() as reader:
        reader.wire.send("Fetch", 11, asked)
        s.fill("fetch-waiting", Batch())
        reader.collect("woken by a write", "Fetch", 11)
        two = 2 * len(Batch().encoded())
        reader.wire.send("Fetch", 11, {**asked, "min_bytes": two})
        s.fill("fetch-waiting", Batch())
        reader.collect("woken when there is enough", "Fetch", 11)
    fetch(s, "not enough in time", wanted("fetch-waiting"), max_wait_ms=50, min_bytes=100_000)


@scenario
def epochs(s: Session) -> None:
    topic_id = s.create("fetch-epochs")
    s.fill("fetch-epochs", Batch())
    fetch(s, "the right leader epoch", wanted("fetch-epochs", place(current_leader_epoch=0)))
    fetch(s, "a leader epoch to come", wanted("fetch-epochs", place(current_leader_epoch=5)))
    fetch(s, "last fetched epoch", wanted("fetch-epochs", place(last_fetched_epoch=0)), version=12)
    ahead = place(0, 1, last_fetched_epoch=0)
    fetch(s, "last fetched epoch at the end", wanted("fetch-epochs", ahead), version=12)
    fetch(s, "last fetched epoch to come", wanted("fetch-epochs", place(last_fetched_epoch=3)), version=12)
    fetch(s, "past the end of its epoch", wanted("fetch-epochs", place(0, 9, last_fetched_epoch=0)), version=12)
    fetch(s, "epoch to come, v16", wanted(topic_id, place(current_leader_epoch=5)), version=16)


@scenario
def isolation(s: Session) -> None:
    s.create("fetch-isolation")
    s.fill("fetch-isolation", Batch())
    fetch(s, "uncommitted", wanted("fetch-isolation"), isolation_level=0)
    fetch(s, "committed", wanted("fetch-isolation"), isolation_level=1)
    fetch(s, "committed at the end", wanted("fetch-isolation", place(0, 1)), isolation_level=1)
    fetch(s, "no such level", wanted("fetch-isolation"), isolation_level=7)


@scenario
def session_by_name(s: Session) -> None:
    """The whole life of a session: open, only what changed, add, forget, errors, close."""
    s.create("session", 3)
    s.fill("session", Batch())
    names = "session"

    def ask(step: str, session: int, epoch: int, *topics: dict[str, Any], **values: Any) -> Any:
        return fetch(s, step, *topics, session_id=session, session_epoch=epoch, **values)

    made = ask("opened", 0, 0, wanted(names, place(0), place(1)))
    session = made.session_id
    ask("unmoved: the record again", session, 1)
    ask("moved on: nothing to say", session, 2, wanted(names, place(0, 1)))
    ask("still nothing", session, 3)
    s.fill("session", Batch(), partition=1)
    ask("only the partition that changed", session, 4)
    ask("moved on there too", session, 5, wanted(names, place(1, 1)))
    ask("one more partition", session, 6, wanted(names, place(2)))
    forgotten = [{"topic": names, "partitions": [1]}]
    ask("one forgotten", session, 7, forgotten_topics_data=forgotten)
    s.fill("session", Batch(), partition=1)
    ask("what was forgotten stays so", session, 8)
    ask("an unknown topic joins", session, 9, wanted("session-never"))
    ask("its error stays", session, 10)
    ask("out of range", session, 11, wanted(names, place(0, 50)))
    ask("a wrong epoch", session, 99)
    ask("an unknown session", 123_456_789, 1)
    ask("closed", session, -1, wanted(names, place(0, 0)))
    ask("closed for good", session, 12)
    ask("no session at all", 0, -1, wanted(names, place(0, 0)))


@scenario
def session_by_id(s: Session) -> None:
    topic_id = s.create("session-id", 2)
    s.fill("session-id", Batch())

    def ask(step: str, session: int, epoch: int, *topics: dict[str, Any], version: int = 13, **values: Any) -> Any:
        return fetch(s, step, *topics, session_id=session, session_epoch=epoch, version=version, **values)

    session = ask("opened", 0, 0, wanted(topic_id, place(0), place(1))).session_id
    ask("moved on", session, 1, wanted(topic_id, place(0, 1)))
    ask("an unknown id joins", session, 2, wanted(BOGUS_ID))
    ask("its error stays", session, 3)
    ask("forgotten", session, 4, forgotten_topics_data=[{"topic_id": topic_id, "partitions": [0]}])
    ask("names in a session of ids", session, 5, wanted("session-id"), version=12)
    by_name = ask("opened by name", 0, 0, wanted("session-id"), version=12).session_id
    ask("ids in a session of names", by_name, 1, wanted(topic_id), version=13)


@scenario
def session_and_a_topic_made_anew(s: Session) -> None:
    """A session by id never serves the records of a new topic under an old name."""
    old = s.create("session-anew")
    s.fill("session-anew", Batch())
    made = fetch(s, "opened", wanted(old), session_id=0, session_epoch=0, version=13)
    s.quietly("DeleteTopics", 6, topics=[{"name": "session-anew"}], timeout_ms=30_000)
    s.until_gone("session-anew")
    s.create("session-anew")
    s.fill("session-anew", Batch([(b"new", b"new")]))
    fetch(s, "the old id", session_id=made.session_id, session_epoch=1, version=13)
