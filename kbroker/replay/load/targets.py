"""Topics of a target cluster: made where they are missing, checked where they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.administration.configs import Kind, Source, describe_configs
from kbroker.administration.topics import NewTopic
from kbroker.client.admin import ClusterAdmin
from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.errors import TopicUnknownError
from kbroker.errors import KafkaError
from kbroker.replay.load.errors import LoadError


def own_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings that were made for the topics themselves, without defaults and the brokers' own."""
    admin = ClusterAdmin(cluster)
    try:
        found = admin.do(describe_configs(admin, Kind.TOPIC, [*topics]))
    except KafkaError as error:
        raise LoadError(f"asking for the settings of topics: {error}") from None
    return {
        name: {
            row.name: row.value
            for row in rows
            if row.config_source == Source.TOPIC and row.value is not None and not row.is_sensitive
        }
        for name, rows in found.items()
    }


def ensure_topics(
    bootstrap: str,
    settings: ClientSettings,
    wanted: Mapping[str, int],
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Makes the topics that are missing, with so many partitions; those that it made.

    LoadError for a topic that has fewer partitions than wanted, ClientError for one that cannot be made.
    """
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
        if missing:
            new = [NewTopic(name, wanted[name], settings=(configs or {}).get(name, {})) for name in missing]
            ClusterAdmin(cluster).make_topics(new)
            _wait(cluster, missing)
    return missing


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
