"""`kbroker export`: makes the directories of a stopped kbroker those of an Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli.output import json_option, print_json, print_table
from kbroker.cli.storage.directory_options import (
    directories_argument,
    dry_run_option,
    link_option,
    listed,
    print_remarks,
    to_option,
)
from kbroker.types import JsonObject, uuid_to_text

if TYPE_CHECKING:
    from kbroker.migration.exporting import ExportReport


@click.command("export")
@directories_argument
@to_option
@click.option("--in-place", is_flag=True, help="Make the directories Kafka's where they are.")
@link_option
@click.option(
    "--kafka-version", "release", default="4.3.1", show_default=True, metavar="VERSION", help="3.7 to 4.3, with KRaft."
)
@dry_run_option
@json_option
def command(
    paths: tuple[str, ...],
    targets: tuple[str, ...],
    in_place: bool,
    link: bool,
    release: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make the directories of a stopped kbroker an Apache Kafka's: all of log.dirs, in their order.

    For one node that is broker and controller (process.roles=broker,controller), with controller.quorum.voters.
    """
    if bool(targets) == in_place and not (dry_run and not targets):
        raise click.UsageError("say --to DIRECTORY for a copy, or --in-place")
    if link and not targets:
        raise click.UsageError("--link needs a directory to go to: --to DIRECTORY")
    from kbroker.errors import KafkaError
    from kbroker.metadata.metadata_record import MetadataLogError
    from kbroker.migration.copying import absolute
    from kbroker.migration.export_plan import UnknownReleaseError
    from kbroker.migration.exporting import ExportOptions, run_export
    from kbroker.migration.stored_metadata import ExportRefusedError
    from kbroker.storage.directories.log_dirs import LogDirError
    from kbroker.storage.files.filesystem import SYSTEM_FILES

    try:
        report = run_export(SYSTEM_FILES, ExportOptions(absolute(paths), release, targets, link, dry_run))
    except UnknownReleaseError as error:
        raise click.UsageError(f"--kafka-version: {error}") from None
    except (ExportRefusedError, LogDirError, MetadataLogError, KafkaError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json(_json(report))
    else:
        _print(report, release)


def settings_of(report: ExportReport) -> list[str]:
    """What Kafka's server.properties must have for these directories, beside listeners."""
    return [
        "process.roles=broker,controller",
        f"node.id={report.node_id}",
        f"log.dirs={','.join(report.log_dirs)}",
        f"controller.quorum.voters={report.node_id}@localhost:9093",
        "controller.listener.names=CONTROLLER",
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    ]


def _json(report: ExportReport) -> JsonObject:
    return {
        "cluster_id": report.stored.cluster_id,
        "node_id": report.node_id,
        "topics": [
            {"name": topic.name, "id": uuid_to_text(topic.topic_id), "partitions": len(topic.partitions)}
            for topic in report.stored.topics
        ],
        "acls": len(report.stored.security.acls),
        "users": sorted({each.user for each in report.stored.security.scram}),
        "delegation_tokens": len(report.stored.security.tokens),
        "features": dict(report.plan.levels),
        "groups": dict(report.names.groups),
        "transactional_ids": list(report.names.transactional_ids),
        "does_not_come_along": list(report.plan.left),
        "left_aside": list(report.left_aside),
        "notes": list(report.names.notes),
        "snapshot": report.snapshot,
        "log_dirs": list(report.log_dirs),
        "settings": settings_of(report) if report.snapshot is not None else None,
    }


def _print(report: ExportReport, release: str) -> None:
    rows = [(topic.name, uuid_to_text(topic.topic_id), len(topic.partitions)) for topic in report.stored.topics]
    print_table(("TOPIC", "ID", "PARTITIONS"), rows)
    click.echo("")
    listed("groups", list(report.names.groups))
    listed("transactional ids", list(report.names.transactional_ids))
    listed("quotas", [str(dict(entity)) for entity in report.stored.quotas])
    security = report.stored.security
    listed("users with SCRAM credentials", sorted({each.user for each in security.scram}))
    listed("principals with ACLs", sorted({each.principal for each in security.acls.values()}))
    listed("delegation tokens", list(security.tokens))
    levels = ", ".join(f"{name} {level}" for name, level in report.plan.levels.items())
    click.echo(f"levels of features in Kafka {release}: {levels}")
    print_remarks(
        {"does not come along": report.plan.left, "left as it is": report.left_aside, "note": report.names.notes},
        report.copied,
    )
    if report.snapshot is None:
        click.echo("nothing was written")
        return
    click.echo(f"wrote {report.snapshot}\n\nKafka's server.properties needs:")
    for line in settings_of(report):
        click.echo(f"  {line}")
