"""An administrator's client that waits for each answer: what commands and jobs ask of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeVar

from kbroker._fast.wire.codec import EncodeError
from kbroker.administration.admin import Admin, run_to_end
from kbroker.administration.groups import list_groups
from kbroker.administration.topics import NewTopic, create_topics
from kbroker.client.cluster import NO_TOPIC_ID, Cluster, TopicInfo
from kbroker.client.errors import ClientError, UnsupportedError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError
from kbroker.nearest import did_you_mean
from kbroker.protocol.messages import Message
from kbroker.schemas import wire

A = TypeVar("A")

CLUSTER_RIGHTS = {
    "DescribeAclsRequest": "DESCRIBE",
    "CreateAclsRequest": "ALTER",
    "DeleteAclsRequest": "ALTER",
    "DescribeUserScramCredentialsRequest": "DESCRIBE",
    "AlterUserScramCredentialsRequest": "ALTER",
    "DescribeClientQuotasRequest": "DESCRIBE_CONFIGS",
    "AlterClientQuotasRequest": "ALTER_CONFIGS",
    "DescribeConfigsRequest": "DESCRIBE_CONFIGS",
    "AlterConfigsRequest": "ALTER_CONFIGS",
    "IncrementalAlterConfigsRequest": "ALTER_CONFIGS",
    "DescribeLogDirsRequest": "DESCRIBE",
    "DescribeQuorumRequest": "DESCRIBE",
    "UpdateFeaturesRequest": "ALTER",
    "ListPartitionReassignmentsRequest": "DESCRIBE",
    "AlterPartitionReassignmentsRequest": "ALTER",
    "ElectLeadersRequest": "ALTER",
}
"""What a principal needs on the cluster, by request, as Kafka's brokers and kbroker's handlers judge it."""


class ClusterAdmin(Admin):
    """Over a cluster's connections.  All that asks raises ClientError, too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.timeout_ms = int(cluster.settings.request_timeout_s * 1000)
        self._topics: dict[str, TopicInfo] | None = None
        self._last = ""
        """The request that was sent last, by its name."""

    def topics(self) -> dict[str, TopicInfo]:
        """All topics, as they were when they were first asked for."""
        if self._topics is None:
            self._topics = self.cluster.list_topics()
        return self._topics

    def groups(self, *kinds: str) -> list[wire.ListGroupsResponse.ListedGroup]:
        """The groups of all brokers, of these kinds alone where some are named."""
        return [row for node_id in self.cluster.nodes() for row in self.do(list_groups(self, node_id, kinds))]

    def do(self, procedure: Coroutine[object, None, A]) -> A:
        """What a procedure of `kbroker.administration` gives.  A refused request's error names the right it needs."""
        try:
            return run_to_end(procedure)
        except KafkaError as error:
            operation = CLUSTER_RIGHTS.get(self._last)
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED or operation is None:
                raise
            text = (
                "Cluster authorization failed" if error.message in (None, error.code.name) else str(error).rstrip(".")
            )
            raise KafkaError.of(error.code, f"{text}: this needs {operation} on the cluster") from None

    def send(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        """See `Admin.ask`."""
        if node_id is not None and node_id not in self.cluster.nodes():
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        try:
            connection = self.cluster.any() if node_id is None else self.cluster.node(node_id)
            self._last = type(request).__name__
            answer = connection.send(request)
        except (UnsupportedError, EncodeError) as error:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        assert isinstance(answer, kind)
        return answer

    async def ask(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        return self.send(kind, request, node_id)

    async def ask_controller(self, kind: type[A], request: Message) -> A:
        controller = self.cluster.controller()
        if controller is None:
            raise ClientError("the cluster has no controller at the moment; try again")
        return self.send(kind, request, controller)

    def leader_of(self, topic: str, partition: int) -> int:
        info = self.topics().get(topic)
        leader = None if info is None else info.partitions.get(partition)
        if leader is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic}")
        if leader.leader_id < 0:
            raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker leads partition {partition} of {topic}")
        return leader.leader_id

    def topic_id_of(self, name: str) -> bytes:
        info = self.topics().get(name)
        return NO_TOPIC_ID if info is None else info.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, info in self.topics().items() if info.topic_id == topic_id), None)

    def now(self) -> float:
        return time.monotonic()

    async def pause(self, seconds: float) -> None:
        self._topics = None
        # There is no loop to give way to: `run_to_end` takes each procedure to its end in one go.
        time.sleep(seconds)  # noqa: ASYNC251

    def make_topics(self, topics: Sequence[NewTopic]) -> None:
        """Make topics.  ClientError names the first that cannot be made."""
        for row in self.do(create_topics(self, topics)):
            if row.error_code:
                why = row.error_message or error_name(row.error_code)
                raise ClientError(f"topic {row.name} cannot be created at {self.cluster.bootstrap}: {why}")

    def near(self, name: str, known: Callable[[], Iterable[str]]) -> str:
        """`; did you mean X?` for a name that there is not; empty where the known ones cannot be had."""
        try:
            return did_you_mean(name, [each for each in known() if each != name])
        except (ClientError, KafkaError):
            return ""
