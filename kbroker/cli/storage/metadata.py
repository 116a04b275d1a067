"""`kbroker metadata`: the store of a stopped broker's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli.output import json_option, print_json, print_table
from kbroker.config import BrokerConfig, ConfigError
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.startup.metadata_rebuild import RebuiltTopic, Survey
    from kbroker.storage.directories.log_dirs import LogDir

LOST = (
    "Not in the directories, so not in the store: settings of topics, brokers and groups that were changed at run "
    "time, users with SCRAM, ACLs, delegation tokens, quotas, topics and partitions without a directory."
)
KEPT = (
    "So that nothing is deleted or compacted before you look, every topic but those of coordinators has "
    "cleanup.policy=delete, retention.ms=-1 and retention.bytes=-1 of its own: set what it had with `kbroker topics "
    "alter TOPIC -c …`, or go back to the defaults with `-d retention.ms -d retention.bytes -d cleanup.policy`."
)


@click.group("metadata")
def command() -> None:
    """Make a stopped broker's metadata store anew."""


@command.command("rebuild")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting.")
@click.option("--add-missing", is_flag=True, help="Make partitions anew, empty, that a topic must have and has not.")
@click.option(
    "--with-defaults", is_flag=True, help="No settings for topics, where none had any: the broker's defaults count."
)
@click.option("--dry-run", is_flag=True, help="Show what there is, and write nothing.")
@json_option
def rebuild(
    properties: str | None,
    overrides: tuple[str, ...],
    add_missing: bool,
    with_defaults: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a metadata store from the partitions in log.dirs, with the broker stopped.

    For a store that was lost, or for directories of an Apache Kafka that does not use them any more.  The settings must
    be those that the broker starts with.
    """
    from kbroker.metadata.store import MetadataStoreError
    from kbroker.startup.metadata_rebuild import RebuildError, plan, survey, write
    from kbroker.startup.new_store import StoreThereError
    from kbroker.storage.directories.log_dirs import LogDirError, describe, open_directories
    from kbroker.storage.files.filesystem import FileSystem

    files = FileSystem()
    directories: list[LogDir] = []
    try:
        config = BrokerConfig.load(properties, overrides)
        directories = open_directories(files, config.log_dirs)
        found = survey(files, [directory.path for directory in directories])
        if not found.partitions:
            raise RebuildError(f"there is no partition in {', '.join(config.log_dirs)}: is this the right log.dirs?")
        topics = plan(found.partitions, config, add_missing=add_missing, keep_everything=not with_defaults)
        path = None
        if not dry_run:
            cluster_id = describe(directories).cluster_id or uuid_to_text(random_uuid())
            for directory in directories:
                directory.bind(cluster_id, config.node_id)
            path = write(files, directories[0].path, cluster_id, topics, found.partitions)
    except (ConfigError, LogDirError, RebuildError, StoreThereError, MetadataStoreError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        for directory in directories:
            directory.release()
    if as_json:
        print_json({"path": path, "topics": [_row(topic) for topic in topics], "left_aside": list(found.left_aside)})
        return
    _print(topics, found, path, kept=not with_defaults)


def _row(topic: RebuiltTopic) -> dict[str, object]:
    image = topic.image
    return {
        "name": image.name,
        "id": uuid_to_text(image.topic_id),
        "partitions": len(image.partitions),
        "configs": dict(image.configs),
        "notes": list(topic.notes),
    }


def _print(topics: list[RebuiltTopic], found: Survey, path: str | None, *, kept: bool) -> None:
    rows = [
        (each.image.name, uuid_to_text(each.image.topic_id), len(each.image.partitions), "; ".join(each.notes))
        for each in topics
    ]
    print_table(("TOPIC", "ID", "PARTITIONS", "NOTES"), rows)
    for aside in found.left_aside:
        click.echo(f"left as it is: {aside}")
    click.echo(f"\n{LOST}")
    if kept:
        click.echo(KEPT)
    click.echo("nothing was written" if path is None else f"wrote {path}")
