"""Which brokers clients are shown while a KRaft cluster's controllers have fenced all of them.  Also of
`kbroker.handlers.cluster.endpoints`, `kbroker.handlers.cluster.cluster_view`,
`kbroker.handlers.cluster.forwarding_view`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from kbroker.handlers.cluster.cluster_view import ClusterView
from kbroker.handlers.cluster.forwarding_view import ForwardingView
from kbroker.metadata.image import NO_CONTROLLER, BrokerImage, BrokersImage, ClusterImage, MetadataDelta
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import wire
from tests.cluster.kraft.stand_in import ForwardingBroker, answered, forwarding

VERSION = 12


DESCRIBE_VERSION = 2


async def shown(served: ForwardingBroker) -> tuple[list[int], int]:
    """The brokers in Metadata, and the controller."""
    answer = await served.ask(encode_request(ApiKey.METADATA, VERSION, 1, "c", wire.MetadataRequest(topics=[]))[4:])
    assert answer is not None
    _, metadata = decode_response(wire.MetadataResponse, VERSION, answer)
    assert isinstance(metadata, wire.MetadataResponse)
    return [each.node_id for each in metadata.brokers], metadata.controller_id


async def described(served: ForwardingBroker, *, with_fenced: bool = False) -> tuple[list[int], int]:
    """The brokers in DescribeCluster, and the controller."""
    request = wire.DescribeClusterRequest(include_fenced_brokers=with_fenced)
    answer = await served.ask(encode_request(ApiKey.DESCRIBE_CLUSTER, DESCRIBE_VERSION, 1, "c", request)[4:])
    assert answer is not None
    _, cluster = decode_response(wire.DescribeClusterResponse, DESCRIBE_VERSION, answer)
    assert isinstance(cluster, wire.DescribeClusterResponse)
    return [each.broker_id for each in cluster.brokers], cluster.controller_id


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
            assert await shown(served) == ([own.node_id], own.node_id)
            fence(own=True, other=True)
            assert (await shown(served))[0] == [own.node_id, other.node_id]

    uvloop.run(main())


def test_where_brokers_are_shown_a_controller_is_named(tmp_path: Path) -> None:
    """librdkafka's admin client, which is told of no controller, waits for one until its request's time is over: the
    first topics after a start would not be made."""

    async def main() -> None:
        async with forwarding(tmp_path, answered) as (served, _controller):
            cache = served.broker.cache
            own = next(iter(cache.image.brokers.values()))
            other = replace(own, node_id=own.node_id + 1, advertised=True)
            both = [own.node_id, other.node_id]
            for own_fenced, other_fenced, alive, named in (
                (False, False, both, own),
                (True, False, [other.node_id], other),
                (False, True, [own.node_id], own),
                (True, True, both, own),
            ):
                brokers: dict[int, Any] = {
                    own.node_id: replace(own, is_fenced=own_fenced),
                    other.node_id: replace(other, is_fenced=other_fenced),
                }
                cache.apply(MetadataDelta(brokers=BrokersImage(brokers, cache.image.controller_id)))
                assert await shown(served) == (alive, named.node_id)
                assert await described(served) == (alive, named.node_id)
                assert await described(served, with_fenced=True) == (both, named.node_id)
            cache.apply(MetadataDelta(brokers=BrokersImage({}, cache.image.controller_id)))
            assert await shown(served) == await described(served) == ([], NO_CONTROLLER)

    uvloop.run(main())


def test_a_fenced_broker_names_another_one_as_the_controller() -> None:
    """Clients know the controllers of a KRaft cluster by no address: they would wait for one that is nobody."""
    fenced, alive = (BrokerImage(2, {}, is_fenced=is_fenced) for is_fenced in (True, False))
    others = [BrokerImage(3, {}), BrokerImage(1, {})]
    unused: Any = None
    view = ForwardingView(unused)
    image = ClusterImage.of("c", controller_id=7)
    by_id = sorted([*others, alive], key=lambda each: each.node_id)
    assert view.controller(image, 2, by_id) == 2
    assert view.controller(image, 2, [others[1], fenced, others[0]]) == 1
    assert view.controller(image, 2, [fenced, others[0]]) == 3
    assert view.controller(image, 2, [replace(others[1], is_fenced=True), fenced]) == 2
    assert view.controller(image, 2, [replace(others[1], is_fenced=True)]) == 1
    assert view.controller(image, 2, []) == NO_CONTROLLER
    assert ClusterView().controller(image, 2, by_id) == 7
