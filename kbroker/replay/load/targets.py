"""Topics of a target cluster: made where they are missing, checked where they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.errors import TopicUnknownError
from kbroker.replay.load.errors import LoadError
from kbroker.security.client.client_security import ClientSecurityError
from kbroker.security.client.librdkafka_settings import to_librdkafka
from kbroker.security.tls.settings import TlsError

if TYPE_CHECKING:
    from types import ModuleType

    from confluent_kafka.admin import AdminClient

_SECONDS = 30.0


def admin(bootstrap: str, client: ClientSettings) -> AdminClient:
    """An admin client that logs nothing by itself.  LoadError for security that librdkafka does not have."""
    from confluent_kafka.admin import AdminClient

    try:
        security = to_librdkafka(client.security)
    except (ClientSecurityError, TlsError) as error:
        raise LoadError(str(error)) from None
    return AdminClient({"bootstrap.servers": bootstrap, "client.id": "kbroker-load", "log_level": "0", **security})


def cluster_id(client: AdminClient) -> str | None:
    """The cluster's id; None where the cluster does not tell it."""
    found: str | None = client.list_topics(timeout=_SECONDS).cluster_id
    return found


def own_configs(client: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings that were made for the topics themselves, without defaults and the brokers' own."""
    import confluent_kafka.admin as api

    kafka: ModuleType = api
    resources = [kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic) for topic in topics]
    found: dict[str, dict[str, str]] = {}
    for resource, future in client.describe_configs(resources).items():
        entries = _result(future, f"asking for the settings of {resource.name}")
        own = kafka.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        found[resource.name] = {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source == own and entry.value is not None and not entry.is_sensitive
        }
    return found


def ensure_topics(
    bootstrap: str,
    settings: ClientSettings,
    wanted: Mapping[str, int],
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Makes the topics that are missing, with so many partitions; those that it made.

    LoadError for a topic that has fewer partitions than wanted, or cannot be made.
    """
    import confluent_kafka.admin as api

    kafka: ModuleType = api
    made = []
    with Cluster(bootstrap, settings) as cluster:
        known = cluster.list_topics()
        for name, count in wanted.items():
            has = len(known[name].partitions) if name in known else count
            if has < count:
                raise LoadError(
                    f"topic {name} at {bootstrap} has {has} partitions and needs {count}: add partitions "
                    f"(kbroker topics alter), or write to another topic"
                )
        missing = [name for name in wanted if name not in known]
        new = [
            kafka.NewTopic(
                name, num_partitions=wanted[name], replication_factor=-1, config=dict((configs or {}).get(name, {}))
            )
            for name in missing
        ]
        if new:
            client = admin(bootstrap, settings)
            for name, future in client.create_topics(new, operation_timeout=_SECONDS).items():
                _result(future, f"creating topic {name} at {bootstrap}")
                made.append(name)
            _wait(cluster, missing)
    return made


def _wait(cluster: Cluster, names: list[str]) -> None:
    """Until the brokers that answer know the new topics and their leaders."""
    patience = cluster.patience("waiting for new topics")
    while True:
        try:
            found = cluster.describe(names)
            if all(info.partitions for info in found.values()):
                return
            patience.again(LoadError("a topic has no partitions yet"))
        except TopicUnknownError as error:
            patience.again(error)


def _result(future: Any, what: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(_SECONDS)
    except KafkaException as error:
        raise LoadError(f"{what}: {error.args[0].str()}") from None
