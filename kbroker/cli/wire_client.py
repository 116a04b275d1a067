"""How commands speak Kafka's protocol: their client, how it connects, and its errors as one line."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import click

from kbroker._fast.wire.codec import EncodeError
from kbroker.administration.admin import Admin, run_to_end
from kbroker.client.cluster import NO_TOPIC_ID, ClientSettings, Cluster, TopicInfo
from kbroker.client.errors import ClientError, UnsupportedError
from kbroker.errors import ErrorCode, KafkaError
from kbroker.nearest import did_you_mean
from kbroker.protocol.messages import Message

A = TypeVar("A")

_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Unknown topic or partition",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty",
}
"""Of errors for which brokers have no text."""


class WireAdmin(Admin):
    """A command's client, which waits for each answer; see `Cluster.admin` of the commands."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.timeout_ms = int(cluster.settings.request_timeout_s * 1000)
        self._topics: dict[str, TopicInfo] | None = None

    def topics(self) -> dict[str, TopicInfo]:
        """All topics, as they were when they were first asked for."""
        if self._topics is None:
            self._topics = self.cluster.list_topics()
        return self._topics

    def do(self, procedure: Coroutine[object, None, A]) -> A:
        """What a procedure of `kbroker.administration` gives."""
        return run_to_end(procedure)

    def send(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        """See `Admin.ask`."""
        if node_id is not None and node_id not in self.cluster.nodes():
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        try:
            connection = self.cluster.any() if node_id is None else self.cluster.node(node_id)
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
            raise click.ClickException("the cluster has no controller at the moment; try again")
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
        time.sleep(seconds)  # noqa: ASYNC251

    def near_topic(self, name: str) -> str:
        """`; did you mean X?` for a topic that there is not."""
        return did_you_mean(name, self.topics())


@contextmanager
def failing_in_words() -> Iterator[None]:
    """ClickException for what a client or a broker refuses."""
    try:
        yield
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    except KafkaError as error:
        raise click.ClickException(text_of(error)) from None


def text_of(error: KafkaError) -> str:
    """A refusal for people: Kafka's name of it and what the broker said."""
    code, text = error.code, str(error)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return text
    if text == code.name:
        return f"{code.name}: {_TEXTS[code]}" if code in _TEXTS else text
    return f"{code.name}: {text}"


def wire_settings(timeout: float, settings: Mapping[str, str]) -> ClientSettings:
    """The settings of a command's connections; `timeout` in seconds bounds each step.

    Security is that of `settings`, in librdkafka's names.  UsageError where it makes no connection.
    """
    from kbroker.security.client.client_security import ClientSecurityError
    from kbroker.security.client.librdkafka_settings import librdkafka_security

    try:
        security = librdkafka_security(settings)
    except ClientSecurityError as error:
        raise click.UsageError(str(error)) from None
    return ClientSettings(
        client_id="kbroker-cli",
        connect_timeout_s=timeout,
        request_timeout_s=timeout,
        patience_s=timeout,
        security=security,
    )
