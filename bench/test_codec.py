"""What the codec costs per message: `pytest bench/test_codec.py`."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker._fast.files.file_region import FileRegion
from kbroker.schemas import message


def produce_request(version: int, partitions: int, records: bytes, topic: str = "topic") -> bytes:
    produce = message("ProduceRequest")
    data = [produce.PartitionProduceData(index=index, records=records) for index in range(partitions)]
    request = produce(
        acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name=topic, partition_data=data)]
    )
    encoded: bytes = produce.program(version).encode(request)
    return encoded


@pytest.mark.parametrize("partitions", [1, 16])
def test_decode_produce(benchmark: Any, partitions: int) -> None:
    """A produce request, as every one-record produce pays it."""
    program = message("ProduceRequest").program(9)
    payload = bytearray(produce_request(9, partitions, bytes(200)))
    benchmark(program.decode, payload)


def test_answer_produce(benchmark: Any) -> None:
    """Building and encoding the answer to a produce of one partition."""
    produce = message("ProduceResponse")
    topic, partition = produce.TopicProduceResponse, produce.PartitionProduceResponse
    program = produce.program(9)

    def answer() -> bytes:
        done = partition(index=0, base_offset=12345, log_append_time_ms=-1, log_start_offset=0)
        frame: bytes = program.encode_response(
            produce(responses=[topic(name="topic", partition_responses=[done])]), 7, True
        )
        return frame

    benchmark(answer)


def fetch_request(version: int, offset: int) -> bytes:
    """A consumer's fetch of one partition."""
    fetch = message("FetchRequest")
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = fetch(max_wait_ms=500, min_bytes=1, topics=[fetch.FetchTopic(topic="topic", partitions=[partition])])
    return bytes(fetch.program(version).encode(request))


def test_decode_fetch(benchmark: Any) -> None:
    benchmark(message("FetchRequest").program(12).decode, bytearray(fetch_request(12, 123456)))


def test_answer_fetch(benchmark: Any) -> None:
    """Building and encoding the answer to a fetch of one partition, from a file region."""
    fetch = message("FetchResponse")
    program = fetch.program(12)
    region = FileRegion(3, 4096, 1 << 20)

    def answer() -> Any:
        partition = fetch.PartitionData(partition_index=0, high_watermark=9, last_stable_offset=9, records=region)
        topic = fetch.FetchableTopicResponse(topic="topic", partitions=[partition])
        return program.encode_response(fetch(responses=[topic]), 7, True)

    benchmark(answer)


@pytest.mark.parametrize("version", [1, 12])
def test_encode_metadata(benchmark: Any, version: int) -> None:
    """Metadata of 100 topics with 12 partitions each."""
    metadata = message("MetadataResponse")
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(12)
    ]
    topics = [
        metadata.MetadataResponseTopic(name=f"topic-{number}", topic_id=bytes(16), partitions=partitions)
        for number in range(100)
    ]
    broker = metadata.MetadataResponseBroker(node_id=1, host="localhost", port=9092)
    answer = metadata(brokers=[broker], cluster_id="x" * 22, controller_id=1, topics=topics)
    benchmark(metadata.program(version).encode_response, answer, 7, version >= 9)
