"""A conversation of raw requests with a broker about share groups, and its answers as plain values.

The same script was spoken with Apache Kafka 4.3.1 (`vectors/`, by `python -m tests.share.script HOST PORT FILE`); ids
that differ from run to run are replaced by names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from kbroker._fast.records.record_batch import iterate_batches
from kbroker._fast.wire.codec import Struct
from kbroker.client.connection import Connection
from kbroker.protocol.api import ApiKey
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import request_message
from kbroker.types import ZERO_UUID
from tests.compat.waiting import wait_for

GROUP_RESOURCE = 32
ALICE = "AAAAAAAAAAAAAAAAAAAAAQ"
BOB = "AAAAAAAAAAAAAAAAAAAAAg"

Acks = Iterable[tuple[int, int, list[int]]]


def plain(value: Any, names: dict[bytes, str]) -> Any:
    """A struct as JSON values; ids by their names, records as the offsets and counts of their batches."""
    if isinstance(value, bytes | memoryview | bytearray):
        if len(value) == 16 and bytes(value) in names:
            return names[bytes(value)]
        return [[info.base_offset, info.records_count] for info in iterate_batches(value)] if len(value) > 16 else None
    if isinstance(value, list | tuple):
        return [plain(each, names) for each in value]
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name), names) for name in vars(type(value))["__slots__"]}
    return value


class Script:
    """Speaks; `answers` has what came back, by step."""

    def __init__(self, connect: Callable[[], Connection], suffix: str = "") -> None:
        self.suffix = suffix
        self.one = connect()
        self.two = connect()
        self.names: dict[bytes, str] = {ZERO_UUID: "none", b"\x01" * 16: "unknown"}
        self.ids: dict[str, bytes] = {"unknown": b"\x01" * 16}
        self.answers: dict[str, Any] = {}

    def note(self, step: str, answer: Any) -> Any:
        assert step not in self.answers, step
        self.answers[step] = plain(answer, self.names)
        return answer

    # Requests

    def create_topic(self, name: str, partitions: int = 1) -> None:
        create = request_message(ApiKey.CREATE_TOPICS)
        topic = create.CreatableTopic(name=name + self.suffix, num_partitions=partitions, replication_factor=1)
        answer = self.one.send(create(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0, answer
        self.ids[name] = bytes(answer.topics[0].topic_id)
        self.names[self.ids[name]] = name

    def produce(self, topic: str, *counts: int) -> None:
        """One batch for each count."""
        produce = request_message(ApiKey.PRODUCE)
        for count in counts:
            builder = RecordBatchBuilder()
            for index in range(count):
                builder.append(None, b"value %d" % index, 1_700_000_000_000)
            data = produce.TopicProduceData(
                name=topic + self.suffix,
                partition_data=[produce.PartitionProduceData(index=0, records=bytes(builder.build()))],
            )
            answer = self.one.send(produce(acks=-1, timeout_ms=30_000, topic_data=[data]), version=9)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def set_group(self, group: str, **configs: str) -> None:
        alter = request_message(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        resource = alter.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group + self.suffix,
            configs=[
                alter.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
                for name, value in configs.items()
            ],
        )
        answer = self.one.send(alter(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer

    def heartbeat(self, group: str, member: str, epoch: int, topics: list[str] | None = None) -> Any:
        beat = request_message(ApiKey.SHARE_GROUP_HEARTBEAT)
        names = None if topics is None else [topic + self.suffix for topic in topics]
        request = beat(
            group_id=group and group + self.suffix, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        return self.one.send(request)

    def join(self, group: str, member: str, topics: list[str]) -> Any:
        """Beat until the member has partitions."""
        find = request_message(ApiKey.FIND_COORDINATOR)
        keys = [group + self.suffix]
        wait_for(
            lambda: not self.one.send(find(key_type=0, coordinator_keys=keys)).coordinators[0].error_code,
            f"the coordinator of {group}",
        )
        epoch = 0

        def assigned() -> Any:
            nonlocal epoch
            answer = self.heartbeat(group, member, epoch, topics)
            epoch = 0 if answer.error_code else answer.member_epoch
            return answer if answer.assignment is not None and answer.assignment.topic_partitions else None

        return wait_for(assigned, f"{member} to have partitions")

    def fetch(
        self,
        connection: Connection,
        group: str,
        member: str,
        epoch: int,
        topics: Iterable[str] = (),
        acks: Acks = (),
        *,
        partition: int = 0,
        forgotten: Iterable[str] = (),
        version: int = 2,
        **fields: Any,
    ) -> Any:
        fetch = request_message(ApiKey.SHARE_FETCH)
        batch = fetch.AcknowledgementBatch
        values = {"max_wait_ms": 200, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
        request = fetch(
            group_id=group and group + self.suffix,
            member_id=member,
            share_session_epoch=epoch,
            topics=[
                fetch.FetchTopic(
                    topic_id=self.ids[topic],
                    partitions=[
                        fetch.FetchPartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                batch(first_offset=first, last_offset=last, acknowledge_types=types)
                                for first, last, types in acks
                            ],
                        )
                    ],
                )
                for topic in topics
            ],
            forgotten_topics_data=[
                fetch.ForgottenTopic(topic_id=self.ids[topic], partitions=[partition]) for topic in forgotten
            ],
            **{**values, **fields},
        )
        return connection.send(request, version=version)

    def acknowledge(
        self,
        connection: Connection,
        group: str,
        member: str,
        epoch: int,
        topic: str,
        acks: Acks,
        *,
        partition: int = 0,
        renews: bool = False,
    ) -> Any:
        message = request_message(ApiKey.SHARE_ACKNOWLEDGE)
        partition_class = message.AcknowledgePartition
        request = message(
            group_id=group and group + self.suffix,
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[
                message.AcknowledgeTopic(
                    topic_id=self.ids[topic],
                    partitions=[
                        partition_class(
                            partition_index=partition,
                            acknowledgement_batches=[
                                message.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks
                            ],
                        )
                    ],
                )
            ],
        )
        return connection.send(request, version=2)

    # The conversation

    def close(self) -> None:
        self.one.close()
        self.two.close()

    def run(self) -> dict[str, Any]:
        self.create_topic("t")
        self.set_group("g", share_auto_offset_reset="earliest")
        self.produce("t", 10, 10, 10, 5)
        self.note("join", self.join("g", ALICE, ["t"]))
        self.join("g", BOB, ["t"])
        self.sessions()
        self.acknowledgements()
        self.odd_requests()
        self.limits()
        return self.answers

    def sessions(self) -> None:
        note, fetch, one = self.note, self.fetch, self.one
        note("acknowledge without a session", self.acknowledge(one, "g", ALICE, 1, "t", [(0, 1, [1])]))
        note("fetch in an unknown session", fetch(one, "g", ALICE, 1, ["t"]))
        note("open with acknowledgements", fetch(one, "g", ALICE, 0, ["t"], [(0, 0, [1])]))
        note("open", fetch(one, "g", ALICE, 0, ["t"], max_records=10))
        note("go on", fetch(one, "g", ALICE, 1, max_records=1))
        note("wrong epoch", fetch(one, "g", ALICE, 1))
        note("epoch too high", fetch(one, "g", ALICE, 9))
        note("acknowledge with the wrong epoch", self.acknowledge(one, "g", ALICE, 7, "t", [(0, 1, [1])]))
        note("acknowledge with epoch 0", self.acknowledge(one, "g", ALICE, 0, "t", [(0, 1, [1])]))
        note("other member opens", fetch(self.two, "g", BOB, 0, ["t"]))
        note("nothing left", fetch(one, "g", ALICE, 2))
        note("opened anew", fetch(one, "g", ALICE, 0, ["t"]))

    def acknowledgements(self) -> None:
        note, one, two = self.note, self.one, self.two
        note("accept a batch", self.acknowledge(one, "g", ALICE, 1, "t", [(0, 9, [1])]))
        note("accept it again", self.acknowledge(one, "g", ALICE, 2, "t", [(0, 9, [1])]))
        note("of another member", self.acknowledge(one, "g", ALICE, 3, "t", [(20, 29, [1])]))
        note("release a part", self.acknowledge(one, "g", ALICE, 4, "t", [(12, 15, [2])]))
        note("released come again", self.fetch(two, "g", BOB, 1))
        note("types for each", self.acknowledge(one, "g", ALICE, 5, "t", [(10, 11, [1, 3]), (16, 19, [1, 2, 0, 3])]))
        note("one comes again", self.fetch(two, "g", BOB, 2))
        note("fetch and acknowledge", self.fetch(two, "g", BOB, 3, ["t"], [(12, 15, [1]), (17, 17, [2])]))
        note("past the end", self.acknowledge(two, "g", BOB, 4, "t", [(30, 99, [1])]))
        note("all past the end", self.acknowledge(two, "g", BOB, 5, "t", [(90, 99, [1])]))
        note("renew", self.acknowledge(two, "g", BOB, 6, "t", [(20, 29, [4])], renews=True))
        note("renew without saying so", self.acknowledge(two, "g", BOB, 7, "t", [(20, 29, [4])]))
        note("say renew and accept", self.acknowledge(two, "g", BOB, 8, "t", [(20, 21, [1])], renews=True))
        note("renew by fetch", self.fetch(two, "g", BOB, 9, ["t"], [(22, 23, [4])], is_renew_ack=True))
        note(
            "renew by fetch of nothing",
            self.fetch(
                two,
                "g",
                BOB,
                9,
                ["t"],
                [(22, 23, [4])],
                is_renew_ack=True,
                max_records=0,
                max_bytes=0,
                min_bytes=0,
                max_wait_ms=0,
                batch_size=0,
            ),
        )
        note("end by acknowledge", self.acknowledge(two, "g", BOB, -1, "t", [(20, 21, [1])]))
        note("after the end", self.acknowledge(two, "g", BOB, 10, "t", [(22, 23, [1])]))
        note("released by the end", self.fetch(one, "g", ALICE, 6))

    def odd_requests(self) -> None:
        note, one = self.note, self.one
        fetch = self.fetch
        note("unknown topic", fetch(one, "g", ALICE, 7, ["unknown"]))
        note("unknown topic goes on", fetch(one, "g", ALICE, 8))
        note("forget it", fetch(one, "g", ALICE, 9, forgotten=["unknown"]))
        note("unknown partition", fetch(one, "g", ALICE, 10, ["t"], partition=7))
        note("forget that", fetch(one, "g", ALICE, 11, forgotten=["t"], partition=7))
        note("acknowledge an unknown topic", self.acknowledge(one, "g", ALICE, 12, "unknown", [(0, 0, [1])]))
        note("acknowledge an unknown partition", self.acknowledge(one, "g", ALICE, 13, "t", [(0, 0, [1])], partition=7))
        for step, acks in {
            "first past last": [(5, 4, [1])],
            "out of order": [(22, 22, [1]), (20, 20, [1])],
            "overlap": [(20, 22, [1]), (21, 23, [1])],
            "no type": [(22, 22, [])],
            "too many types": [(22, 22, [1, 1])],
            "unknown type": [(22, 22, [9])],
            "negative type": [(22, 22, [-1])],
        }.items():
            note(step, self.acknowledge(one, "g", ALICE, 14 + len(self.answers) - self.answers_before(), "t", acks))
        epoch = 14 + 7
        note("odd acknowledgement in a fetch", fetch(one, "g", ALICE, epoch, ["t"], [(22, 22, [9])]))
        note("bad member id", fetch(one, "g", "not a uuid", 0, ["t"]))
        note("empty member id", fetch(one, "g", "", 0, ["t"]))
        note("no group", fetch(one, "", ALICE, 0, ["t"]))
        note("group without state", fetch(one, "other", ALICE, 0, ["t"]))
        note("max records 0", fetch(one, "g", ALICE, epoch + 1, max_records=0))
        note("end with partitions", fetch(one, "g", ALICE, -1, ["t"]))
        note("end", fetch(one, "g", ALICE, -1, ["t"], [(22, 22, [1])]))

    def answers_before(self) -> int:
        if not hasattr(self, "_before"):
            self._before = len(self.answers)
        return self._before

    def limits(self) -> None:
        note, one = self.note, self.one
        self.create_topic("u")
        self.set_group("h", share_auto_offset_reset="earliest", share_delivery_count_limit="2")
        self.produce("u", *([7] * 20))
        self.join("h", ALICE, ["u"])
        note("batches of 10", self.fetch(one, "h", ALICE, 0, ["u"], max_records=30, batch_size=10))
        note("exactly 10", self.fetch(one, "h", ALICE, 1, max_records=10, batch_size=4, share_acquire_mode=1))
        note("bad mode", self.fetch(one, "h", ALICE, 2, max_records=10, batch_size=4, share_acquire_mode=7))
        note("all", self.fetch(one, "h", ALICE, 2, max_records=1000, batch_size=1000))
        note("release all", self.fetch(one, "h", ALICE, 3, ["u"], [(0, 139, [2])], max_records=1000))
        note("release all again", self.fetch(one, "h", ALICE, 4, ["u"], [(0, 139, [2])], max_records=1000))
        self.produce("u", 3)
        note("poison is gone", self.fetch(one, "h", ALICE, 5, max_records=1000, version=1))


def main() -> None:
    host, port, path = sys.argv[1:]
    answers = Script(lambda: Connection(host, int(port)), str(time.time_ns())).run()
    with open(path, "w") as file:
        json.dump(answers, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
