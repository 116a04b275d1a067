"""The client between brokers against a peer whose every byte the test decides, and against a broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.cluster.client import (
    ClientSettings,
    ConnectionLostError,
    MalformedAnswerError,
    NodeClient,
    NodeError,
    NodeTimeoutError,
    UnreachableError,
    UnsupportedVersionError,
)
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS, protocol_version
from kbroker.host.garbage import left_by_requests
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.broker_process import BrokerProcess
from tests.cluster.nodes import Peer
from tests.garbage.uncollected import uncollected

ALTER = wire.AlterPartitionRequest
EMPTY = wire.MetadataRequest(topics=[])


def run(scenario: Callable[[Peer, NodeClient], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        peer = Peer()
        await peer.start()
        loop = asyncio.get_running_loop()
        values = {"client_id": "1", "backoff_seconds": 0.001, "max_backoff_seconds": 0.002, **settings}
        endpoint = Endpoint("127.0.0.1", peer.port)
        client = NodeClient(loop, TcpTransport(loop), lambda: endpoint, ClientSettings(**values))
        try:
            async with asyncio.timeout(60):
                await scenario(peer, client)
        finally:
            client.close()
            await peer.stop()

    uvloop.run(main())


def test_requests_are_written_at_once_and_answered_in_order() -> None:
    """Each request would wait a round trip for the one before it."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = [asyncio.ensure_future(client.send(ALTER(broker_id=each), 3)) for each in range(3)]
        headers = [await peer.request() for _ in range(3)]
        assert [body.broker_id for _, body in headers] == [0, 1, 2]
        assert {header.client_id for header, _ in headers} == {"1"}
        for header, body in headers:
            peer.answer(header.correlation_id, wire.AlterPartitionResponse(throttle_time_ms=body.broker_id), 3)
        assert [each.throttle_time_ms for each in await asyncio.gather(*asked)] == [0, 1, 2]

    run(scenario)


def test_an_answer_larger_than_the_buffer_comes_whole_and_in_any_pieces() -> None:
    """A fetch of more than 64 KB could not be read."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        records = bytes(range(256)) * 1200
        fetched = asyncio.ensure_future(client.send(wire.FetchRequest(), 17))
        small = asyncio.ensure_future(client.send(wire.FetchRequest(), 17))
        first, _ = await peer.request()
        second, _ = await peer.request()
        response = wire.FetchResponse
        part = response.PartitionData(partition_index=1, records=records)
        body = response(responses=[response.FetchableTopicResponse(topic_id=b"t" * 16, partitions=[part])])
        frames = b""
        for header, answer in ((first, body), (second, response(session_id=7))):
            frame: Any = response.program(17).encode_response(answer, header.correlation_id, True)
            frames += frame if isinstance(frame, bytes) else b"".join(bytes(each) for each in frame)
        for at in range(0, len(frames), 50_001):
            peer.writers[-1].write(frames[at : at + 50_001])
            await peer.writers[-1].drain()
            await asyncio.sleep(0)
        answer = await fetched
        assert bytes(answer.responses[0].partitions[0].records) == records
        assert (await small).session_id == 7

    run(scenario)


def test_silence_ends_all_that_is_under_way_and_the_next_request_connects_anew() -> None:
    """A broker that hangs would hold a fetcher, or the controller's queue, for good."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        slow = asyncio.ensure_future(client.send(ALTER(broker_id=1), 3))
        await peer.request()
        with pytest.raises(NodeTimeoutError):
            await client.send(ALTER(broker_id=2), 3, seconds=0.05)
        with pytest.raises(ConnectionLostError):
            await slow
        await peer.request()
        again = asyncio.ensure_future(client.send(ALTER(broker_id=3), 3))
        header, body = await peer.request()
        assert body.broker_id == 3 and len(peer.writers) == 2
        peer.answer(header.correlation_id, wire.AlterPartitionResponse(), 3)
        await again

    run(scenario)


def test_a_lost_connection_and_nonsense_fail_the_request() -> None:
    """A request would wait for an answer that cannot come."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        for nonsense in (b"", struct.pack(">ii", 4, 999), struct.pack(">i", -5), struct.pack(">i", 1 << 30)):
            asked = asyncio.ensure_future(client.send(ALTER(), 3))
            await peer.request()
            if nonsense:
                peer.writers[-1].write(nonsense)
            else:
                peer.writers[-1].close()
            with pytest.raises((ConnectionLostError, MalformedAnswerError)):
                await asked
            assert not client.is_connected and client.in_flight == 0

    run(scenario, max_answer_bytes=1 << 20)


def test_what_is_not_there_or_too_large_is_never_sent() -> None:
    """A caller could not tell a request that may have been served from one that was not."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        with pytest.raises(ValueError, match="bytes"):
            await client.send(wire.MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
        loop = asyncio.get_running_loop()
        settings = ClientSettings("1", backoff_seconds=0.001)
        nowhere = NodeClient(loop, TcpTransport(loop), lambda: Endpoint("127.0.0.1", 1), settings)
        unknown = NodeClient(loop, TcpTransport(loop), lambda: None, settings)
        for client_ in (nowhere, unknown):
            with pytest.raises(UnreachableError):
                await client_.send(EMPTY, 9)
        client.close()
        with pytest.raises(UnreachableError):
            await client.send(EMPTY, 9)

    run(scenario, max_request_bytes=16)


def test_a_client_that_is_closed_while_versions_are_negotiated_hangs_up() -> None:
    """The connection would stay until the request's time-out."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(EMPTY, 9))
        await peer.request()
        client.close()
        await peer.hung_up.wait()
        with pytest.raises(NodeError):
            await asked

    run(scenario, negotiates=True, request_seconds=600.0)


def test_who_waits_for_a_connection_is_told_that_the_client_was_closed_and_not_cancelled() -> None:
    """What sends markers of transactions ended with a broker that left the cluster while a connection to it was being
    opened: its transactions stayed open."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = [asyncio.ensure_future(client.send(EMPTY, 9)) for _ in range(2)]
        given_up = asyncio.ensure_future(client.send(EMPTY, 9))
        await peer.request()
        given_up.cancel()
        client.close()
        for each in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(each, UnreachableError)
        with pytest.raises(asyncio.CancelledError):
            await given_up

    run(scenario, negotiates=True, request_seconds=600.0)


def test_versions_are_negotiated_where_asked(tmp_path: Path) -> None:
    """The controller may be of another release: it would close the connection on a version that it lacks."""

    async def main(port: int) -> None:
        loop = asyncio.get_running_loop()
        settings = ClientSettings("1", negotiates=True)
        client = NodeClient(loop, TcpTransport(loop), lambda: Endpoint("127.0.0.1", port), settings)
        await client.connect()
        version = client.version_of(ApiKey.METADATA, 9)
        assert version == 9
        assert len((await client.send(EMPTY, version)).brokers) == 1
        with pytest.raises(UnsupportedVersionError):
            client.version_of(ApiKey.VOTE, 1)
        client.close()

    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        uvloop.run(main(broker.port))
    finally:
        broker.stop()


def test_every_release_has_its_row() -> None:
    """A cluster at that setting could not be joined, or would be sent what it does not know."""
    assert protocol_version("3.9-IV0") is PROTOCOL_VERSIONS["3.9"]
    assert protocol_version("0.10.2-IV0").fetch == 3 and protocol_version("2.7").truncates_on_fetch
    assert not protocol_version("2.6").truncates_on_fetch
    for text in ("", "4.0", "3", "3.9.1.2.3", "x"):
        with pytest.raises(ValueError, match="protocol"):
            protocol_version(text)


class _LostAtOnce:
    """A network whose first connection is lost before `connect` returns."""

    def __init__(self, inner: TcpTransport) -> None:
        self.inner = inner
        self.count = 0

    async def connect(self, host: str, port: int, received: Any, lost: Any, max_frame_bytes: int) -> Any:
        self.count += 1
        if self.count > 1:
            return await self.inner.connect(host, port, received, lost, max_frame_bytes)
        lost(ConnectionResetError("reset"))
        return _Dead()


class _Dead:
    def send(self, parts: Any) -> None:
        raise RuntimeError("the handler is closed")

    def close(self) -> None:
        pass


def test_a_connection_that_ends_as_soon_as_it_is_there_is_not_used() -> None:
    """A controller's queue for a broker, or a follower, would stand still on a connection that is gone."""

    async def scenario(peer: Peer, _client: NodeClient) -> None:
        loop = asyncio.get_running_loop()
        endpoint = Endpoint("127.0.0.1", peer.port)
        settings = ClientSettings("1", backoff_seconds=0.001, max_backoff_seconds=0.002)
        client = NodeClient(loop, _LostAtOnce(TcpTransport(loop)), lambda: endpoint, settings)
        with pytest.raises(UnreachableError, match="reset"):
            await client.send(ALTER(broker_id=1), 3)
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=1), 3))
        header, _ = await peer.request()
        peer.answer(header.correlation_id, wire.AlterPartitionResponse(), 3)
        assert (await asked).error_code == 0
        client.close()

    run(scenario)


class _NeverThere(TcpTransport):
    """A network in which no connection comes to be."""

    async def connect(self, host: str, port: int, *_: Any) -> Any:
        await asyncio.sleep(3600)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_connection_that_is_given_up_leaves_no_errors(is_left: bool) -> None:
    """The time limit keeps the attempt's task, and the task its error: with its frames that is a cycle, one for each
    attempt to reach a node that is cut off.

    `is_left`: the caller has no use for the connection any more, before its time is over."""

    async def scenario(peer: Peer, _client: NodeClient) -> None:
        loop = asyncio.get_running_loop()
        settings = ClientSettings("1", backoff_seconds=0.001, connect_seconds=600.0 if is_left else 0.01)
        client = NodeClient(loop, _NeverThere(loop), lambda: Endpoint("127.0.0.1", peer.port), settings)
        if is_left:
            loop.call_later(0.005, client.disconnect)
        try:
            await client.connect()
        except UnreachableError:
            given_up.append(client)
        client.close()

    given_up: list[NodeClient] = []
    with uncollected() as left:
        run(scenario)
    assert given_up and not left_by_requests(left)


def test_a_request_on_a_connection_that_is_closing_fails_as_lost() -> None:
    """Whatever sends would have to know the errors of the event loop, too."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        await client.connect()
        channel: Any = client._channel
        channel._transport.close()
        with pytest.raises(ConnectionLostError):
            await client.send(ALTER(broker_id=1), 3)

    run(scenario)


def test_an_answer_that_came_while_the_process_was_held_up_is_read() -> None:
    """After a pause each request under way would fail, and what it asked for be asked for again."""

    async def scenario(peer: Peer, client: NodeClient) -> None:
        asked = asyncio.ensure_future(client.send(ALTER(broker_id=1), 3))
        header, _ = await peer.request()
        peer.answer(header.correlation_id, wire.AlterPartitionResponse(throttle_time_ms=7), 3)
        pending = client._in_flight[0]
        assert pending.timer is not None and client._channel is not None
        pending.timer.cancel()
        # As the loop does whose timers are all due: before it reads.
        client._late(client._channel, pending, 30.0)
        assert (await asked).throttle_time_ms == 7

    run(scenario)
