"""Topics that a Metadata request names and that do not exist, in a KRaft cluster:
`kbroker.handlers.cluster.on_behalf`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.cluster.kraft import kraft_controller
from kbroker.cluster.kraft.kraft_controller import KRaftController
from kbroker.errors import ErrorCode
from kbroker.metadata.image import MetadataDelta, PartitionImage, TopicImage
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header, decode_response, encode_request
from kbroker.schemas import wire
from tests.cluster.kraft.stand_in import ALICE, Controller, ForwardingBroker, Known, answered, forwarding, refused
from tests.services import put

VERSION = 9
ASKED = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name="named")])


class Log:
    """The metadata log: what the controller made is in the image at once, or never."""

    def __init__(self, arrives: Callable[[], None]) -> None:
        self._arrives = arrives

    async def wait_until(self, condition: Callable[[], bool], _seconds: float) -> None:
        if not condition():
            self._arrives()
        if not condition():
            raise TimeoutError


def created(envelope: Any, code: int = 0) -> tuple[Any, Any]:
    """The request in an envelope, and its answer."""
    frame = bytes(envelope.request_data)
    header = decode_request_header(frame)
    body: Any = wire.CreateTopicsRequest.program(header.api_version).decode(frame, header.size)
    row = wire.CreateTopicsResponse.CreatableTopicResult
    answer = wire.CreateTopicsResponse(topics=[row(name=each.name, error_code=code) for each in body.topics])
    made = type(answer).program(header.api_version).encode_response(answer, header.correlation_id, True)
    return (header, body), answered(bytes(made)[4:])


def run(folder: Path, serve: Callable[[Any], Any], scenario: Callable[[ForwardingBroker, Controller], Any]) -> None:
    async def main() -> None:
        async with forwarding(folder, serve, Known(ALICE)) as (served, controller):
            broker = served.broker

            def arrives() -> None:
                rows = (PartitionImage(0, 1, 0, (1,), (1,)),)
                if broker.cache.topic("named") is None:
                    broker.cache.apply(MetadataDelta(created=(TopicImage("named", b"n" * 16, rows),)))

            log: Any = Log(arrives)
            channel: Any = None
            made = KRaftController(channel, log, broker.cache, broker.settings, lambda: None)
            put(broker.services, controller=made)
            await scenario(served, controller)

    uvloop.run(main())


async def code_of(served: ForwardingBroker, correlation_id: int = 31) -> int:
    answer = await served.ask(encode_request(ApiKey.METADATA, VERSION, correlation_id, "of-alice", ASKED)[4:])
    assert answer is not None
    _, body = decode_response(wire.MetadataResponse, VERSION, answer)
    assert isinstance(body, wire.MetadataResponse)
    return body.topics[0].error_code


def test_a_topic_that_a_client_names_is_asked_for_in_its_name(tmp_path: Path) -> None:
    """The controllers would authorize the broker instead of the client, and count no quota of it."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await code_of(served) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ((header, body), _) = created(controller.asked[0])
        assert (header.client_id, header.correlation_id) == ("of-alice", 31)
        assert [(each.name, each.num_partitions, each.replication_factor) for each in body.topics] == [("named", 1, 1)]
        assert b"alice" in bytes(controller.asked[0].request_principal)
        assert await code_of(served) == ErrorCode.NONE
        assert len(controller.asked) == 1

    run(tmp_path, lambda envelope: created(envelope)[1], scenario)


def test_the_controllers_refusal_is_the_clients(tmp_path: Path) -> None:
    """The client would ask for ever for a topic that it may not make."""

    async def scenario(served: ForwardingBroker, _controller: Controller) -> None:
        assert await code_of(served) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, lambda envelope: created(envelope, ErrorCode.TOPIC_AUTHORIZATION_FAILED)[1], scenario)


@pytest.mark.parametrize("code", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT])
def test_what_will_pass_is_no_error_of_the_topic(tmp_path: Path, code: ErrorCode) -> None:
    """Clients know no such error of a topic in Metadata, and would give up what they only have to wait for."""

    async def scenario(served: ForwardingBroker, _controller: Controller) -> None:
        assert await code_of(served) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, lambda envelope: created(envelope, code)[1], scenario)


def test_without_a_controller_the_client_is_not_held_and_the_topic_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers would stand still with each failure of a controller, and flood the next one with the same request."""
    monkeypatch.setattr(kraft_controller, "WAIT_SECONDS", 0.05)
    is_active = False

    def serve(envelope: Any) -> Any:
        return created(envelope)[1] if is_active else refused(ErrorCode.NOT_CONTROLLER)

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        nonlocal is_active
        for number in range(3):
            assert await code_of(served, number) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_active = True
        while served.broker.cache.topic("named") is None:
            await asyncio.sleep(0.005)
        asked = {decode_request_header(bytes(each.request_data)).correlation_id for each in controller.asked}
        assert asked == {0}, "the second and the third request have nothing to ask for"
        assert await code_of(served) == ErrorCode.NONE

    run(tmp_path, serve, scenario)
