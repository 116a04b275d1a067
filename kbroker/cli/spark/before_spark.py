"""What can be found wrong before Spark takes its time to start: Java, clusters, topics, places for outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from kbroker.cli.connection import CONNECT_SECONDS, Cluster


def check_java() -> None:
    """ClickException where there is no Java that Spark runs on, unless a session runs already."""
    from pyspark.sql import SparkSession

    from kbroker.replay.java import JavaError
    from kbroker.replay.java import check_java as check

    if SparkSession.getActiveSession() is not None:
        return
    try:
        check()
    except JavaError as error:
        raise click.ClickException(str(error)) from None


def check_cluster(bootstrap: str, topics: Iterable[str] = (), settings: Mapping[str, str] | None = None) -> None:
    """ClickException where no broker answers, or one of the topics does not exist."""
    names = list(topics)
    plain = (settings or {}).get("security.protocol", "plaintext").lower() == "plaintext"
    if not names or not plain:
        Cluster(bootstrap, dict(settings or {}), CONNECT_SECONDS).check_reachable()
        return
    with Cluster.at(bootstrap, CONNECT_SECONDS).admin() as admin:
        admin.cluster.describe(names)


def check_outputs(*paths: str | None, overwrite: bool) -> None:
    """TraceError where one of the paths is there already, or cannot be made."""
    from kbroker.replay.trace_output import check_free

    for path in paths:
        if path is not None:
            check_free(path, overwrite=overwrite)
