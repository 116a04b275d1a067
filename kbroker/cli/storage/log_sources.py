"""Where `kbroker logs` gets what it shows: a running broker's metrics listener, any Kafka's protocol, or files.

    the metrics listener   everything; a kbroker only
    Kafka's protocol       sizes and directories (DescribeLogDirs), from any Kafka
    a directory            what the files of a stopped broker tell

Each source answers in the format of the metrics listener's pages (`kbroker.storage.reports.log_pages`).
"""

from __future__ import annotations

from typing import Any, Protocol

import click

from kbroker.cli.connection import Cluster
from kbroker.cli.metrics_listener import MetricsListener, NotThereError
from kbroker.nearest import did_you_mean
from kbroker.types import JsonObject

DEFAULT_METRICS = "http://127.0.0.1:9644"
Value = JsonObject


class LogSource(Protocol):
    """What the commands ask."""

    def overview(self) -> Value:
        """Directories and a line for each partition."""

    def describe(self, topic: str, partition: int | None) -> list[Value]:
        """Everything about a topic's partitions, or one of them."""


class LogPages:
    """The pages about logs of a running kbroker."""

    def __init__(self, listener: MetricsListener) -> None:
        self._listener = listener

    def overview(self) -> Value:
        """One row for each partition.  ClickException when the listener does not answer."""
        return self._listener.json("/logs")

    def describe(self, topic: str, partition: int | None) -> list[Value]:
        """The descriptions of a topic's partitions, or of one.  ClickException when there is none."""
        try:
            if partition is not None:
                return [self._listener.json(f"/logs/{topic}/{partition}")]
            partitions: list[Value] = self._listener.json(f"/logs/{topic}")["partitions"]
        except NotThereError as error:
            topics = {row["topic"] for row in self.overview()["partitions"]}
            near = "" if topic in topics else did_you_mean(topic, topics)
            raise click.ClickException(error.message + near) from None
        return partitions


class KafkaProtocol:
    """Any Kafka, asked with DescribeLogDirs."""

    def __init__(self, address: str, timeout: float) -> None:
        self._cluster = Cluster.at(address, timeout)
        self._cluster.check_is_one()

    def overview(self) -> Value:
        """Sizes by partition and directory, from DescribeLogDirs.  ClickException when it cannot be asked."""
        from kbroker.error_codes import error_name
        from kbroker.schemas import wire

        with self._cluster.admin() as admin:
            answer = admin.send(wire.DescribeLogDirsResponse, wire.DescribeLogDirsRequest(topics=None))
        if answer.error_code:
            raise click.ClickException(f"DescribeLogDirs: {error_name(answer.error_code)}")
        rows = [
            _row(topic.name, partition, directory.log_dir)
            for directory in answer.results
            for topic in directory.topics
            for partition in topic.partitions
        ]
        directories = [
            {
                "path": directory.log_dir,
                "state": "offline" if directory.error_code else "online",
                "free_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
                "refusing_produce": None,
                "cordoned": directory.is_cordoned,
            }
            for directory in answer.results
        ]
        rows.sort(key=lambda row: (row["topic"], row["partition"]))
        return {"directories": directories, "partitions": rows}

    def describe(self, topic: str, partition: int | None) -> list[Value]:
        """UsageError: Kafka's protocol has no such request."""
        raise click.UsageError(
            "Kafka's protocol has no request for this: ask a kbroker's metrics listener (--metrics), or read the files "
            "of a stopped one (--directory)"
        )


def _row(topic: str, partition: Any, directory: str) -> Value:
    unknown = (
        "segment_count",
        "log_start_offset",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "cleanup_policy",
        "dirty_ratio",
        "dirty_bytes",
    )
    lag = partition.offset_lag
    state = f"a copy that moves here, {lag} offsets behind" if partition.is_future_key else "ok"
    return {
        "topic": topic,
        "partition": partition.partition_index,
        "size_bytes": partition.partition_size,
        **dict.fromkeys(unknown),
        "state": state,
        "directory": directory,
    }


class Directories:
    """The files of a broker that does not run."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths

    def overview(self) -> Value:
        """One row for each partition found on the disk, and the directories' states."""
        directories, rows = [], []
        for path in self._paths:
            with _opened(path) as directory:
                rows.extend(directory.summaries())
                directories.append(
                    {
                        "path": directory.path,
                        "state": "stopped in order" if directory.clean else "not stopped in order",
                        "free_bytes": None,
                        "refusing_produce": None,
                        "cordoned": None,
                    }
                )
        rows.sort(key=lambda row: (row["topic"], row["partition"]))
        return {"directories": directories, "partitions": rows}

    def describe(self, topic: str, partition: int | None) -> list[Value]:
        """The descriptions of a topic's partitions, or of one.  ClickException when there is none."""
        found: list[Value] = []
        for path in self._paths:
            with _opened(path) as directory:
                found.extend(directory.describe(topic, partition))
        if not found:
            which = topic if partition is None else f"{topic}-{partition}"
            topics = {row["topic"] for row in self.overview()["partitions"]}
            near = "" if topic in topics else did_you_mean(topic, topics)
            raise click.ClickException(f"there is no {which} in {', '.join(self._paths)}{near}")
        return sorted(found, key=lambda row: int(row["partition"]))


def _opened(path: str) -> Any:
    from kbroker.storage.directories.directory_description import opened
    from kbroker.storage.directories.log_dirs import LogDirError

    class Opened:
        """`opened`, with its errors as the command's."""

        def __enter__(self) -> object:
            self._context = opened(path)
            try:
                return self._context.__enter__()
            except LogDirError as error:
                raise click.ClickException(str(error)) from None

        def __exit__(self, *reason: Any) -> None:
            self._context.__exit__(*reason)

    return Opened()
