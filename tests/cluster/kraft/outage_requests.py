"""Requests to a broker whose controllers are away: what only they can do, and what the broker knows by itself.

Each function gives a request and its version; `number` is that of the round.
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.schemas import wire

Asked = Callable[[int], tuple[object, int]]
TOPIC_CONFIG = 2
TIMEOUT_MS = 1000


def create_topic(number: int) -> tuple[object, int]:
    request = wire.CreateTopicsRequest
    topic = request.CreatableTopic(name=f"never-{number}", num_partitions=1, replication_factor=1)
    return request(topics=[topic], timeout_ms=TIMEOUT_MS), 7


def delete_topic(_number: int) -> tuple[object, int]:
    request = wire.DeleteTopicsRequest
    return request(topics=[request.DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS), 6


def create_partitions(_number: int) -> tuple[object, int]:
    request = wire.CreatePartitionsRequest
    return request(topics=[request.CreatePartitionsTopic(name="t", count=9)], timeout_ms=TIMEOUT_MS), 3


def alter_configs(_number: int) -> tuple[object, int]:
    request = wire.AlterConfigsRequest
    setting = request.AlterableConfig(name="retention.ms", value="1000")
    resource = request.AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name="t", configs=[setting])
    return request(resources=[resource]), 2


def incremental_alter_configs(_number: int) -> tuple[object, int]:
    request = wire.IncrementalAlterConfigsRequest
    setting = request.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = request.AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name="t", configs=[setting])
    return request(resources=[resource]), 1


def alter_quotas(_number: int) -> tuple[object, int]:
    request = wire.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="client-id", entity_name="c")
    entry = request.EntryData(entity=[entity], ops=[request.OpData(key="producer_byte_rate", value=1000.0)])
    return request(entries=[entry]), 1


def alter_users(_number: int) -> tuple[object, int]:
    request = wire.AlterUserScramCredentialsRequest
    return request(deletions=[request.ScramCredentialDeletion(name="alice", mechanism=1)]), 0


def create_acls(_number: int) -> tuple[object, int]:
    request = wire.CreateAclsRequest
    creation = request.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    return request(creations=[creation]), 3


def delete_acls(_number: int) -> tuple[object, int]:
    request = wire.DeleteAclsRequest
    acl = request.DeleteAclsFilter(resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3)
    return request(filters=[acl]), 3


def elect_leaders(_number: int) -> tuple[object, int]:
    request = wire.ElectLeadersRequest
    return request(topic_partitions=[request.TopicPartitions(topic="t", partitions=[0])], timeout_ms=TIMEOUT_MS), 2


def reassign(_number: int) -> tuple[object, int]:
    request = wire.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=[2])
    return request(topics=[request.ReassignableTopic(name="t", partitions=[partition])], timeout_ms=TIMEOUT_MS), 0


def list_reassignments(_number: int) -> tuple[object, int]:
    return wire.ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS), 0


def update_features(_number: int) -> tuple[object, int]:
    request = wire.UpdateFeaturesRequest
    update = request.FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
    return request(timeout_ms=TIMEOUT_MS, feature_updates=[update]), 1


def unregister(_number: int) -> tuple[object, int]:
    return wire.UnregisterBrokerRequest(broker_id=2), 0


def describe_quorum(_number: int) -> tuple[object, int]:
    request = wire.DescribeQuorumRequest
    topic = request.TopicData(topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)])
    return request(topics=[topic]), 1


def metadata(_number: int) -> tuple[object, int]:
    request = wire.MetadataRequest
    return request(topics=[request.MetadataRequestTopic(name="t")]), 9


def cluster(_number: int) -> tuple[object, int]:
    return wire.DescribeClusterRequest(), 1


def configs(_number: int) -> tuple[object, int]:
    request = wire.DescribeConfigsRequest
    names = ["retention.ms", "min.insync.replicas"]
    resource = request.DescribeConfigsResource(resource_type=TOPIC_CONFIG, resource_name="t", configuration_keys=names)
    return request(resources=[resource]), 4


def quotas(_number: int) -> tuple[object, int]:
    return wire.DescribeClientQuotasRequest(), 1


def users(_number: int) -> tuple[object, int]:
    return wire.DescribeUserScramCredentialsRequest(), 0


REFUSED: tuple[Asked, ...] = (
    create_topic,
    delete_topic,
    create_partitions,
    alter_configs,
    incremental_alter_configs,
    alter_quotas,
    alter_users,
    create_acls,
    delete_acls,
    elect_leaders,
    reassign,
    list_reassignments,
    update_features,
    unregister,
    describe_quorum,
)
"""A request of each API that goes on to the active controller, but for tokens and voters."""
SERVED: tuple[Asked, ...] = (metadata, cluster, configs, quotas, users)
"""What a broker answers from its image."""
