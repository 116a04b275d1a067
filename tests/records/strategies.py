"""What hypothesis draws for batches: records as clients make them, and payloads damaged in small ways."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from tests.records.reference import ReferenceRecord, encode_record

FIELD = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=150)
HEADER = st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=12))
DELTA = st.integers(0, 3) | st.integers(-(2**40), 2**40)


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 1) -> list[ReferenceRecord]:
    count = draw(st.integers(min_size, 8))
    return [
        ReferenceRecord(
            index,
            draw(DELTA),
            draw(FIELD),
            draw(FIELD),
            tuple(draw(st.lists(HEADER, max_size=3))),
            draw(st.integers(0, 1)),
        )
        for index in range(count)
    ]


def payload_of(records: list[ReferenceRecord]) -> bytes:
    return b"".join(map(encode_record, records))


@st.composite
def damaged_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """(payload, declared count): good records with a few bytes changed, put in or taken out, or another count."""
    records = draw(record_lists())
    payload = bytearray(payload_of(records))
    for _ in range(draw(st.integers(0, 3))):
        if not payload:
            break
        at = draw(st.integers(0, len(payload) - 1))
        kind = draw(st.sampled_from(["change", "insert", "delete", "cut"]))
        if kind == "change":
            payload[at] = draw(st.integers(0, 255))
        elif kind == "insert":
            payload[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "delete":
            del payload[at : at + draw(st.integers(1, 3))]
        else:
            del payload[at:]
    return bytes(payload), max(1, len(records) + draw(st.sampled_from([0, 0, 0, 1, -1])))


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` cut anywhere, empty chunks among them."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]
