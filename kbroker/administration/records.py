"""Records: those of a time found, old ones deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.administration.admin import by_topic
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin, Place


async def from_time(admin: Admin, ends: Mapping[Place, int], milliseconds: int) -> dict[Place, int]:
    """The first offset from a time on (since the epoch) of each partition; its end where no record is that young."""
    found = await admin.offsets_of(ends, milliseconds)
    return {place: end if found[place] < 0 else found[place] for place, end in ends.items()}


async def delete_records(admin: Admin, targets: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    """Delete the records before an offset of each partition, by its leader; its (error code, first offset) then."""
    request = wire.DeleteRecordsRequest
    by_leader: dict[int, list[Place]] = {}
    for place in targets:
        by_leader.setdefault(admin.leader_of(*place), []).append(place)
    done = {}
    for leader, led in by_leader.items():
        topics = [
            request.DeleteRecordsTopic(
                name=name,
                partitions=[
                    request.DeleteRecordsPartition(partition_index=index, offset=targets[name, index])
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(led).items()
        ]
        answer = await admin.ask(
            wire.DeleteRecordsResponse, request(topics=topics, timeout_ms=admin.timeout_ms), leader
        )
        for topic in answer.topics:
            for row in topic.partitions:
                done[topic.name, row.partition_index] = row.error_code, row.low_watermark
    return done
