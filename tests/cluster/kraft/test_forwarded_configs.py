"""What `kbroker.handlers.cluster.forwarded_configs` does of changes of settings, and what it leaves to the
controller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import uvloop

from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header, decode_response, encode_request
from kbroker.schemas import wire
from tests.cluster.kraft.stand_in import ForwardingBroker, answered, forwarding, refused

ALTER = wire.IncrementalAlterConfigsRequest
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1
OWN_ID = "1"


def resource(kind: int, name: str, *settings: tuple[str, int, str | None]) -> Any:
    configs = [ALTER.AlterableConfig(name=key, config_operation=does, value=value) for key, does, value in settings]
    return ALTER.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def run(folder: Path, resources: list[Any], serve: Any) -> tuple[list[Any] | None, list[Any]]:
    """The rows of the answer, None where the broker hangs up, and the requests that the controller was sent."""
    forwarded: list[Any] = []

    def answer(envelope: Any) -> Any:
        frame = bytes(envelope.request_data)
        header = decode_request_header(frame)
        assert (header.api_key, header.correlation_id, header.client_id) == (ApiKey.INCREMENTAL_ALTER_CONFIGS, 3, "c")
        body = ALTER.program(header.api_version).decode(frame, header.size)
        forwarded.append(body)
        return serve(header, body)

    async def main() -> list[Any] | None:
        async with forwarding(folder, answer) as (served, _controller):
            frame = encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 3, "c", ALTER(resources=resources))[4:]
            got = await served.ask(frame)
            if got is None:
                return None
            correlation_id, body = decode_response(wire.IncrementalAlterConfigsResponse, 1, got)
            assert correlation_id == 3
            assert isinstance(body, wire.IncrementalAlterConfigsResponse)
            return list(body.responses)

    return uvloop.run(main()), forwarded


def all_done(header: Any, body: Any) -> Any:
    """The controller's answer that takes all, in an order of its own."""
    row = wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows = [
        row(resource_type=each.resource_type, resource_name=each.resource_name, error_message="taken")
        for each in reversed(body.resources)
    ]
    made = wire.IncrementalAlterConfigsResponse(responses=rows)
    return answered(type(made).program(header.api_version).encode_response(made, header.correlation_id, True)[4:])


def test_what_is_settled_here_does_not_reach_the_controller(tmp_path: Path) -> None:
    """A logger of this process cannot be changed elsewhere, and a controller would refuse the whole request for it."""
    logger = logging.getLogger("kbroker.handlers")
    before = logger.level
    try:
        rows, forwarded = run(
            tmp_path,
            [
                resource(TOPIC, "a", ("retention.ms", SET, "1000")),
                resource(LOGGER, OWN_ID, ("kbroker.handlers", SET, "DEBUG")),
                resource(TOPIC, "twice"),
                resource(TOPIC, "twice"),
                resource(TOPIC, "b", ("retention.ms", SET, None)),
                resource(BROKER, OWN_ID, ("log.retention.ms", DELETE, None)),
                resource(BROKER, "2", ("log.retention.ms", SET, "1000")),
                resource(BROKER, "", ("broker.rack", SET, "r")),
                resource(99, "x"),
            ],
            all_done,
        )
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)
    assert rows is not None
    assert [(row.error_code, row.error_message) for row in rows] == [
        (0, "taken"),
        (0, None),
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
        (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (0, "taken"),
        (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [broker.rack]"),
        (ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ]
    assert [(each.resource_type, each.resource_name) for each in forwarded[0].resources] == [
        (TOPIC, "a"),
        (BROKER, OWN_ID),
    ]
    assert len(forwarded) == 1


def test_a_request_without_a_rest_asks_nobody(tmp_path: Path) -> None:
    """Levels of loggers could not be changed while no controller is active."""
    rows, forwarded = run(tmp_path, [resource(LOGGER, "2", ("kbroker", SET, "INFO"))], all_done)
    assert rows is not None
    assert [row.error_message for row in rows] == ["Unexpected node id. Expected 1, but received 2"]
    assert forwarded == []


def test_a_refused_envelope_fails_the_rest_alone(tmp_path: Path) -> None:
    """What was done here would be reported as failed."""
    resources = [resource(TOPIC, "a"), resource(LOGGER, OWN_ID, ("kbroker.handlers", DELETE, None))]
    rows, _ = run(tmp_path, resources, lambda _header, _body: refused(ErrorCode.INVALID_REQUEST))
    assert rows is not None
    assert [row.error_code for row in rows] == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]


def test_a_version_that_the_controller_does_not_know_ends_the_connection(tmp_path: Path) -> None:
    """The client has to ask for versions again."""
    resources = [resource(TOPIC, "a"), resource(LOGGER, OWN_ID, ("kbroker.handlers", DELETE, None))]
    rows, _ = run(tmp_path, resources, lambda _header, _body: refused(ErrorCode.UNSUPPORTED_VERSION))
    assert rows is None


def test_the_older_api_is_judged_in_the_same_way(tmp_path: Path) -> None:
    """AlterConfigs would be another way around what the broker checks."""
    old = wire.AlterConfigsRequest
    broker = old.AlterConfigsResource(
        resource_type=BROKER, resource_name="", configs=[old.AlterableConfig(name="broker.rack", value="r")]
    )
    logger = old.AlterConfigsResource(resource_type=LOGGER, resource_name=OWN_ID, configs=[])

    async def main() -> None:
        async with forwarding(tmp_path, lambda _: None) as (served, controller):
            got = await ask_old(served, old(resources=[broker, logger]))
            assert [row.error_code for row in got.responses] == [ErrorCode.INVALID_REQUEST] * 2
            assert controller.asked == []

    uvloop.run(main())


async def ask_old(served: ForwardingBroker, request: wire.AlterConfigsRequest) -> wire.AlterConfigsResponse:
    got = await served.ask(encode_request(ApiKey.ALTER_CONFIGS, 2, 3, "c", request)[4:])
    assert got is not None
    _, body = decode_response(wire.AlterConfigsResponse, 2, got)
    assert isinstance(body, wire.AlterConfigsResponse)
    return body
