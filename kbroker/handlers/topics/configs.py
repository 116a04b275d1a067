"""DescribeConfigs: v0-v4.

The settings of topics, of this broker and of its loggers; one result per resource, in the order of the request.

- What was set at start names its origin (file and line, environment variable, --override) in its documentation.
- v0 says `is_default`; v1+ says the source and, when asked for, synonyms; v3+ the type and, when asked for, a line of
  documentation.  A null or empty list of keys means all; unknown keys are left out without a word.
- Brokers: only this one describes itself.  An empty name means the settings that were changed for all brokers at run
  time.
- Loggers are this process's; `kbroker.handlers.topics.loggers`.
- An answer holds at most a million settings; resources beyond that are POLICY_VIOLATION, so that one small request for
  the same resource over and over cannot use up the memory.
- Groups have settings whether they exist or not, by default those of the broker; so do client metrics (KIP-714).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.errors import InvalidRequestError, KafkaError, PolicyViolationError, UnknownTopicOrPartitionError
from kbroker.gate.access import require_cluster, require_group, require_topic
from kbroker.handlers.table import Handler
from kbroker.handlers.topics import loggers
from kbroker.handlers.topics.config_entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    entries_for_all_brokers,
    group_entries,
    topic_entries,
)
from kbroker.metadata.image import ConfigResource
from kbroker.metadata.topic_names import validate
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services

    Result = wire.DescribeConfigsResponse.DescribeConfigsResourceResult

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
MAX_ENTRIES = 1_000_000


async def handle_describe_configs(ctx: RequestContext, request: wire.DescribeConfigsRequest) -> Struct:
    """DescribeConfigs v0-v4; see the module's docstring."""
    response = wire.DescribeConfigsResponse
    pace = ctx.services.slices.pace()
    results = []
    # Topics share most settings: each entry is made a struct once, by its id().  The entry is kept with it, so that no
    # other object gets its id().
    made: dict[int, tuple[ConfigEntry, Result]] = {}
    # Most topics have the same settings throughout: these share one list.
    shared: dict[tuple[int, frozenset[str]], tuple[Sequence[ConfigEntry], list[Result]]] = {}
    room = MAX_ENTRIES
    for resource in request.resources:
        await pace
        result = response.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
        )
        results.append(result)
        try:
            _require(ctx, resource.resource_type, resource.resource_name)
            entries = described = _describe(ctx.services, resource.resource_type, resource.resource_name)
            keys = frozenset(resource.configuration_keys or ())
            known = shared.get((id(described), keys))
            if known is not None and len(known[1]) <= room:
                room -= len(known[1])
                result.configs = known[1]
                continue
            if keys:
                entries = [entry for entry in entries if entry.name in keys]
            if len(entries) > room:
                raise PolicyViolationError("Excessively large number of settings per request.")
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message or ""
            continue
        room -= len(entries)
        for entry in entries:
            if id(entry) not in made:
                made[id(entry)] = entry, _struct(entry, ctx.api_version, request)
        result.configs = [made[id(entry)][1] for entry in entries]
        # A tuple is cached as long as its settings exist.  It is kept with the results, so that no other object gets
        # its id().
        if isinstance(described, tuple):
            shared[id(described), keys] = described, result.configs
    return response(results=results)


def _require(ctx: RequestContext, resource_type: int, name: str) -> None:
    if resource_type == ConfigResourceType.TOPIC:
        require_topic(ctx, Operation.DESCRIBE_CONFIGS, name)
    elif resource_type == ConfigResourceType.GROUP:
        require_group(ctx, Operation.DESCRIBE_CONFIGS, name)
    elif resource_type in set(ConfigResourceType):
        require_cluster(ctx, Operation.DESCRIBE_CONFIGS)


def _describe(services: Services, resource_type: int, name: str) -> Sequence[ConfigEntry]:
    if resource_type == ConfigResourceType.TOPIC:
        return _describe_topic(services, name)
    if resource_type == ConfigResourceType.BROKER:
        if not name:
            return entries_for_all_brokers(services.config)
        _check_broker(services.node_id, name, "{} or empty string,")
        return broker_entries(services.config, services.node_id)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidRequestError("Broker id must not be empty")
        _check_broker(services.node_id, name, "{}")
        return loggers.entries()
    configs = services.metadata_cache.image.configs
    if resource_type == ConfigResourceType.GROUP:
        if not name:
            raise InvalidRequestError("Group name must not be empty")
        return group_entries(services.config, configs.get(ConfigResource(resource_type, name), {}))
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("Client metrics subscription name must not be empty")
        return client_metrics_entries(configs.get(ConfigResource(resource_type, name), {}))
    raise InvalidRequestError(MALFORMED)


def _describe_topic(services: Services, name: str) -> Sequence[ConfigEntry]:
    topic = services.metadata_cache.topic(name)
    if topic is None:
        validate(name)
        raise UnknownTopicOrPartitionError
    return topic_entries(services.config, topic.configs, read=True)


def _check_broker(node_id: int, name: str, expected: str) -> None:
    try:
        requested = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if requested != node_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {expected.format(node_id)} but received {requested}")


def _struct(
    entry: ConfigEntry, version: int, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResponse.DescribeConfigsResourceResult:
    response = wire.DescribeConfigsResponse
    struct = response.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_sensitive=entry.sensitive,
        config_source=entry.source,
        config_type=entry.type_code,
        documentation=entry.doc if request.include_documentation or not entry.doc else None,
    )
    if version == 0:
        struct.is_default = entry.is_default
    if request.include_synonyms:
        struct.synonyms = [
            response.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return struct


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.DESCRIBE_CONFIGS, 0, 4, handle_describe_configs),)
