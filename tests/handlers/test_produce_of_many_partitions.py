"""Produce requests of several partitions: what the fast path appends and what it leaves to the handler come together
in one answer, which is the one that the handler alone would have given.

Also of `kbroker.handlers.records.delayed_produce`, `kbroker._fast.requests.fast_produce`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.base.slices import Slices
from kbroker._fast.net.direct import PartialAppend
from kbroker._fast.net.pending import Pending
from kbroker._fast.net.route import NO_RESPONSE
from kbroker.errors import ErrorCode
from kbroker.handlers.records.produce import FAST_PRODUCE, ProduceResponse, handle_produce
from kbroker.records.compression import Codec
from kbroker.replication.commit_wait import WaitTally
from kbroker.replication.partition import Partition
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.types import TopicPartition
from tests.extensions.direct_requests import ask
from tests.handlers.both_ways import ProduceRequest, encoded
from tests.handlers.partitions import Manager, led
from tests.storage.batches import START_MS, append, batch, environment, open_log
from tests.unbroken import UNBROKEN, finished

TOPICS = {"a": bytes(range(16)), "b": bytes(range(16, 32))}
PARTITIONS = 3
FIRST_WITH_IDS = 13


class Broker(Manager):
    """What a produce asks of a broker: two topics of three partitions, one of the second with a replica elsewhere."""

    def __init__(self, folder: Path) -> None:
        purgatory: Any = SimpleNamespace(mark=lambda partition: None, produces=WaitTally())
        env = environment(SYSTEM_FILES)
        super().__init__({}, {topic_id: name for name, topic_id in TOPICS.items()}, purgatory)
        for name, topic_id in TOPICS.items():
            rows = self.topics[name] = {}
            for index in range(PARTITIONS):
                lagging = (name, index) == ("b", 2)
                isr = (1, 2) if lagging else (1,)
                log = open_log(folder / f"{name}-{index}", env=env)
                for value in (b"first", b"second"):  # the second one reserves blocks for those that follow
                    append(log, batch([value]))
                rows[index] = Partition(name, index, topic_id, log, 1, led(isr), purgatory)
        logs = {
            TopicPartition(name, index): row.log for name, rows in self.topics.items() for index, row in rows.items()
        }
        self.services = SimpleNamespace(
            replica_manager=self,
            log_manager=SimpleNamespace(logs=logs),
            clock=SimpleNamespace(now_ms=lambda: START_MS),
            loop=None,
            config=None,
            slices=UNBROKEN,
        )
        self.closed: list[str] = []

    def append(
        self, partition: Partition, records: Any, *, origin: AppendOrigin, analyzed: Any = None, guard: Any = None
    ) -> Any:
        result = partition.log.append_as_leader(records, partition.leader_epoch, origin=origin, analyzed=analyzed)
        if not result.duplicate:
            partition.appended()
        return result

    def serve(self, version: int, data: bytearray, fast: bool) -> Any:
        """The answer as bytes; ("waits", partitions that do), NO_RESPONSE, or None for a connection that is closed."""
        connection = SimpleNamespace(close=self.closed.append)
        ctx: Any = SimpleNamespace(
            gate=None,
            services=self.services,
            api_version=version,
            client_id="c",
            connection=connection,
            note_error=lambda _: None,
        )
        answer = ask(FAST_PRODUCE, self.services, version, 77, data) if fast else None
        if answer is None or isinstance(answer, PartialAppend):
            request = ProduceRequest.program(version).decode(data, 0, len(data))
            answer = finished(handle_produce(ctx, request, None if answer is None else answer.appended))
        if isinstance(answer, Pending):
            return "waits"
        if answer is None or answer is NO_RESPONSE or isinstance(answer, bytes):
            return answer
        return ProduceResponse.program(version).encode_response(answer, 77, version >= 9)

    def state(self) -> list[Any]:
        return [
            (
                log.log_end_offset,
                log.high_watermark,
                Path(log.local.segments.active.path).read_bytes()[: log.size_bytes],
            )
            for rows in self.topics.values()
            for log in (partition.log for partition in rows.values())
        ]

    def close(self) -> None:
        for rows in self.topics.values():
            for partition in rows.values():
                partition.log.close(clean=False)


def damaged(data: bytes) -> bytes:
    broken = bytearray(data)
    broken[-1] ^= 1
    return bytes(broken)


RECORDS = [
    bytes(batch([b"x"])),
    bytes(batch([b"x", b"y"])),
    bytes(batch([b"k"], compression=Codec.LZ4)),
    bytes(batch([b"k"], compression=Codec.ZSTD)),
    bytes(batch([b"s"], producer_id=5, epoch=0, sequence=0)),
    bytes(batch([b"t"], producer_id=5, epoch=0, sequence=1)),
    bytes(batch([b"g"], compression=Codec.GZIP)),
    damaged(bytes(batch([b"bad"]))),
    b"",
]
ROWS = st.tuples(
    st.sampled_from([*TOPICS, "unknown"]), st.integers(0, PARTITIONS), st.sampled_from([*range(len(RECORDS)), 0, 0, 1])
)


def request(version: int, acks: int, rows: list[tuple[str, int, int]]) -> bytearray:
    topics: dict[str, list[Any]] = {}
    for name, index, records in rows:
        row = ProduceRequest.PartitionProduceData(index=index, records=RECORDS[records])
        topics.setdefault(name, []).append(row)
    named = [
        ProduceRequest.TopicProduceData(name=name, topic_id=TOPICS.get(name, b"\7" * 16), partition_data=partitions)
        for name, partitions in topics.items()
    ]
    return encoded(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=named), version)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    requests=st.lists(
        st.tuples(st.integers(3, 13), st.sampled_from([0, 1, 1, -1, -1, 2]), st.lists(ROWS, min_size=1, max_size=7)),
        min_size=1,
        max_size=4,
    )
)
def test_each_partition_gets_what_the_handler_alone_would_have_given_it(
    requests: list[tuple[int, int, list[tuple[str, int, int]]]],
) -> None:
    """A batch would be stored twice, or not, or at another's offset, where one of its request is refused."""
    with tempfile.TemporaryDirectory() as folder:
        fast, general = Broker(Path(folder, "fast")), Broker(Path(folder, "general"))
        for version, acks, rows in requests:
            data = request(version, acks, rows)
            assert fast.serve(version, bytearray(data), True) == general.serve(version, data, False)
            assert fast.closed == general.closed
        assert fast.state() == general.state()
        fast.close()
        general.close()


def test_a_request_of_sound_batches_is_answered_without_being_decoded() -> None:
    """Producers of many partitions, as most are, would each pay for structs and Python for every batch."""
    rows = [("a", 0, 0), ("a", 1, 1), ("b", 0, 2), ("a", 0, 1), ("b", 1, 0)]
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        for version in range(7, 14):
            for acks in (1, -1):
                assert isinstance(ask(FAST_PRODUCE, broker.services, version, 77, request(version, acks, rows)), bytes)
            assert ask(FAST_PRODUCE, broker.services, version, 77, request(version, 0, rows)) is NO_RESPONSE
        broker.close()


def test_one_batch_that_is_left_costs_the_others_nothing() -> None:
    """One refused batch would send seven sound ones the slow way, or have them stored a second time."""
    rows = [("a", 0, 0), ("a", 1, 7), ("b", 0, 1), ("a", 1, 0)]
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        answer = ask(FAST_PRODUCE, broker.services, 9, 77, request(9, 1, rows))
        assert isinstance(answer, PartialAppend)
        # The request names topic by topic: a's three rows, then b's.
        assert answer.appended == [(2, 2), None, None, (2, 3)], "what follows a batch that was left waits for it"
        broker.close()


def test_batches_of_more_than_a_slice_go_on_in_slices_and_keep_their_order() -> None:
    """A small request of batches that unpack to a thousand times their size would hold all other clients up."""
    unpacks_to_much = bytes(batch([bytes(7 << 20)], compression=Codec.ZSTD))
    rows = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index in range(PARTITIONS)
        for records in [unpacks_to_much] * 8 + [RECORDS[0]]
    ]
    topics = [ProduceRequest.TopicProduceData(name="a", partition_data=rows)]
    data = encoded(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)

    async def main(folder: Path) -> None:
        broker = Broker(folder)
        slices = broker.services.slices = Slices(asyncio.get_running_loop())
        answer = ask(FAST_PRODUCE, broker.services, 9, 77, data)
        assert isinstance(answer, PartialAppend)
        assert answer.appended[0] == (2, 2) and answer.appended[-1] is None
        request = ProduceRequest.program(9).decode(data, 0, len(data))
        ctx: Any = SimpleNamespace(
            gate=None, services=broker.services, api_version=9, client_id="c", note_error=lambda _: None
        )
        (topic,) = (await handle_produce(ctx, request, answer.appended)).responses
        assert [row.base_offset for row in topic.partition_responses] == list(range(2, 11)) * PARTITIONS
        assert slices.count
        broker.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


def test_a_request_of_very_many_partitions_rests_at_each() -> None:
    """100,000 batches in one request took a second of the loop's time, in which nobody else was served."""
    rows = [ProduceRequest.PartitionProduceData(index=0, records=RECORDS[0]) for _ in range(600)]
    topics = [ProduceRequest.TopicProduceData(name=name, partition_data=rows) for name in ("a", "unknown")]
    data = encoded(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)

    async def main(folder: Path) -> None:
        broker = Broker(folder)
        slices = broker.services.slices = Slices(asyncio.get_running_loop(), 0)
        assert ask(FAST_PRODUCE, broker.services, 9, 77, data) is None
        request = ProduceRequest.program(9).decode(data, 0, len(data))
        ctx: Any = SimpleNamespace(
            gate=None, services=broker.services, api_version=9, client_id="c", note_error=lambda _: None
        )
        stored, unknown = (await handle_produce(ctx, request)).responses
        assert [row.base_offset for row in stored.partition_responses] == list(range(2, 602))
        assert {row.error_code for row in unknown.partition_responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert slices.count >= 1200
        broker.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


def test_a_name_that_is_no_text_stores_nothing_of_its_request() -> None:
    """The decoder ends the connection for it: its client would not know what of the rest was stored."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        data = request(9, 1, [("a", 0, 0), ("unknown", 0, 0)])
        data[data.index(b"unknown") : data.index(b"unknown") + 7] = b"\xff" * 7
        assert ask(FAST_PRODUCE, broker.services, 9, 77, data) is None
        assert broker.topics["a"][0].log.log_end_offset == 2
        broker.close()
