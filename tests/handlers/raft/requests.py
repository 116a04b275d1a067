"""A request of each API that a controller serves, which it can answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbroker.cluster.kraft.forwarding import address_bytes, principal_data
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import encode_request
from kbroker.protocol.schema import Field, parse_versions
from kbroker.schemas import request_message, wire
from kbroker.security.principal import AuthenticationState, Principal, Session

TOPIC = "__cluster_metadata"
ALICE = Session(Principal("User", "alice"), "10.0.0.9", state=AuthenticationState.AUTHENTICATED)


def enveloped(request: Any, version: int, session: Session = ALICE, **changes: bytes) -> wire.EnvelopeRequest:
    """An envelope with that request, as a broker sends it for a client."""
    frame = encode_request(request.api_key, version, 77, "console", request)[4:]
    fields = {
        "request_data": frame,
        "request_principal": principal_data(session),
        "client_host_address": address_bytes(session.host),
    }
    return wire.EnvelopeRequest(**{**fields, **changes})


def request_of(api_key: ApiKey, version: int) -> Any:
    """One that a controller can answer: the defaults of its fields where these make sense."""
    match api_key:
        case ApiKey.API_VERSIONS:
            return wire.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        case ApiKey.CREATE_TOPICS:
            topic = wire.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            return wire.CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        case ApiKey.DELETE_TOPICS if version < 6:
            return wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        case ApiKey.DELETE_TOPICS:
            return wire.DeleteTopicsRequest(
                topics=[wire.DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000
            )
        case ApiKey.CREATE_PARTITIONS:
            growth = wire.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)
            return wire.CreatePartitionsRequest(topics=[growth], timeout_ms=1000)
        case ApiKey.DESCRIBE_ACLS:
            return wire.DescribeAclsRequest(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
            )
        case ApiKey.CREATE_ACLS:
            acl = wire.CreateAclsRequest.AclCreation(
                resource_type=2,
                resource_name="t",
                resource_pattern_type=3,
                principal="User:bob",
                host="*",
                operation=3,
                permission_type=3,
            )
            return wire.CreateAclsRequest(creations=[acl])
        case ApiKey.INCREMENTAL_ALTER_CONFIGS | ApiKey.ALTER_CONFIGS:
            message = request_message(api_key)
            config = message.AlterableConfig(name="log.retention.ms", value="1000")
            resource = message.AlterConfigsResource(resource_type=4, resource_name="7", configs=[config])
            return message(resources=[resource])
        case ApiKey.DESCRIBE_CONFIGS:
            resource = wire.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
            return wire.DescribeConfigsRequest(resources=[resource])
        case ApiKey.ELECT_LEADERS:
            named = wire.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
            return wire.ElectLeadersRequest(topic_partitions=[named], timeout_ms=1000)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS | ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return request_message(api_key)(timeout_ms=1000)
        case ApiKey.DESCRIBE_CLUSTER:
            return wire.DescribeClusterRequest(endpoint_type=2) if version else wire.DescribeClusterRequest()
        case ApiKey.ENVELOPE:
            return enveloped(wire.DescribeQuorumRequest(), 2)
        case ApiKey.DELETE_ACLS:
            wanted = wire.DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
            )
            return wire.DeleteAclsRequest(filters=[wanted])
        case ApiKey.UPDATE_FEATURES:
            update = wire.UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)
            return wire.UpdateFeaturesRequest(feature_updates=[update])
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            gone = wire.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="bob", mechanism=1)
            return wire.AlterUserScramCredentialsRequest(deletions=[gone])
        case ApiKey.ALTER_CLIENT_QUOTAS:
            message = wire.AlterClientQuotasRequest
            entry = message.EntryData(
                entity=[message.EntityData(entity_type="user", entity_name="bob")],
                ops=[message.OpData(key="producer_byte_rate", value=1.0)],
            )
            return message(entries=[entry])
    return request_message(api_key)()


def plain(struct: Any, fields: Iterable[Field], version: int) -> dict[str, Any]:
    """The fields of a message in that version, as plain values."""
    found: dict[str, Any] = {}
    for each in fields:
        value = getattr(struct, each.name)
        if version not in parse_versions(each.versions):
            continue
        if isinstance(value, list):
            value = [plain(item, each.fields, version) if each.fields else item for item in value]
        elif each.fields and value is not None:
            value = plain(value, each.fields, version)
        found[each.name] = value.hex() if isinstance(value, bytes) else value
    return found
