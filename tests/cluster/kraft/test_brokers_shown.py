"""Which brokers clients are shown while a KRaft cluster's controllers have fenced all of them.  Also of
`kbroker.handlers.endpoints`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from kbroker.metadata.image import BrokersImage, MetadataDelta
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import wire
from tests.cluster.kraft.stand_in import ForwardingBroker, answered, forwarding

VERSION = 12


async def shown(served: ForwardingBroker) -> list[int]:
    answer = await served.ask(encode_request(ApiKey.METADATA, VERSION, 1, "c", wire.MetadataRequest(topics=[]))[4:])
    assert answer is not None
    _, metadata = decode_response(wire.MetadataResponse, VERSION, answer)
    assert isinstance(metadata, wire.MetadataResponse)
    return [each.node_id for each in metadata.brokers]


def test_brokers_that_are_all_fenced_are_shown_all_the_same(tmp_path: Path) -> None:
    """librdkafka forgets brokers that it is not shown: with none left a client never asks anybody again, though a
    controller that was held up has fenced them for a moment alone."""

    async def main() -> None:
        async with forwarding(tmp_path, answered) as (served, _controller):
            cache = served.broker.cache
            own = next(iter(cache.image.brokers.values()))
            other = replace(own, node_id=own.node_id + 1, advertised=True)

            def fence(**are_fenced: bool) -> None:
                brokers: dict[int, Any] = {
                    each.node_id: replace(each, is_fenced=are_fenced[name])
                    for name, each in (("own", own), ("other", other))
                }
                cache.apply(MetadataDelta(brokers=BrokersImage(brokers, cache.image.controller_id)))

            fence(own=False, other=True)
            assert await shown(served) == [own.node_id]
            fence(own=True, other=True)
            assert await shown(served) == [own.node_id, other.node_id]

    uvloop.run(main())
