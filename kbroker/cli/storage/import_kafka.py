"""`kbroker import`: takes over, or copies, the directories of an Apache Kafka that does not run."""

from __future__ import annotations

import shlex
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
    from kbroker.migration.importing import ImportReport

DEFAULT = "<default>"


@click.command("import")
@directories_argument
@to_option
@click.option(
    "--copy", is_flag=True, help="Copy all files, sharing blocks where the file system can.  [default with --to]"
)
@link_option
@click.option("--in-place", is_flag=True, help="Take the directories over where they are.  [default without --to]")
@click.option("--metadata-dir", metavar="DIRECTORY", help="Kafka's metadata.log.dir, where it is none of DIRECTORY.")
@click.option("--zookeeper", metavar="HOST:PORT", help="The running ZooKeeper of a cluster that has one.")
@click.option("--add-missing", is_flag=True, help="Make partitions anew, empty, of which no replica is here.")
@dry_run_option
@json_option
def command(
    paths: tuple[str, ...],
    targets: tuple[str, ...],
    copy: bool,
    link: bool,
    in_place: bool,
    metadata_dir: str | None,
    zookeeper: str | None,
    add_missing: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make the directories of a stopped Apache Kafka kbroker's: all of its log.dirs, in their order.

    Of KRaft (3.x, 4.x), or of ZooKeeper's time (2.x to 3.9).  Topics, their ids, settings, quotas, groups, committed
    offsets and transactional ids come along; the command names what cannot.
    """
    if in_place and (targets or copy or link):
        raise click.UsageError("--in-place does not go with --to, --copy or --link")
    if (copy or link) and not targets:
        raise click.UsageError("a copy needs a directory to go to: --to DIRECTORY")
    if copy and link:
        raise click.UsageError("--copy does not go with --link")
    from kbroker.errors import KafkaError
    from kbroker.metadata.metadata_record import MetadataLogError
    from kbroker.migration.copying import absolute
    from kbroker.migration.importing import ImportOptions, ImportRefusedError, run_import
    from kbroker.startup.new_store import StoreThereError
    from kbroker.storage.directories.log_dirs import LogDirError
    from kbroker.storage.files.filesystem import SYSTEM_FILES

    options = ImportOptions(
        absolute(paths),
        targets,
        metadata_dir,
        zookeeper,
        link,
        add_missing,
        dry_run,
    )
    try:
        report = run_import(SYSTEM_FILES, options)
    except (ImportRefusedError, MetadataLogError, StoreThereError, LogDirError, KafkaError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json(_json(report))
    else:
        _print(report)
    return 1 if report.plan.blockers else 0


def _json(report: ImportReport) -> JsonObject:
    plan, contents = report.plan, report.plan.contents
    return {
        "mode": str(report.source.mode),
        "cluster_id": report.source.cluster_id,
        "node_id": report.source.node_id,
        "closed_in_order": report.source.was_closed,
        "topics": [
            {
                "name": each.image.name,
                "id": uuid_to_text(each.image.topic_id),
                "partitions": len(each.image.partitions),
                "configs": dict(each.image.configs),
                "notes": list(each.notes),
            }
            for each in plan.topics
        ],
        "configs": [
            {"type": resource.kind, "name": resource.name, "configs": dict(values)}
            for resource, values in contents.configs.items()
        ],
        "quotas": [{"entity": dict(entity), "values": dict(values)} for entity, values in contents.quotas.items()],
        "acls": len(contents.security.acls),
        "users": sorted({each.user for each in contents.security.scram}),
        "delegation_tokens": len(contents.security.tokens),
        "features": None if contents.features is None else dict(contents.features.chosen),
        "groups": dict(report.names.groups),
        "transactional_ids": list(report.names.transactional_ids),
        "does_not_come_along": list(plan.left),
        "left_aside": list(report.left_aside),
        "notes": list(report.notes),
        "blockers": list(plan.blockers),
        "copied": None
        if report.copied is None
        else {
            "files": report.copied.files,
            "bytes": report.copied.size_bytes,
            "linked_files": report.copied.linked_files,
            "linked_bytes": report.copied.linked_bytes,
        },
        "metadata_store": report.store,
        "log_dirs": list(report.log_dirs),
        "start": None if report.store is None else start_command(report),
    }


def start_command(report: ImportReport) -> str:
    """What starts a broker on the directories, as long as no server.properties does."""
    settings = [f"log.dirs={','.join(report.log_dirs)}"]
    if report.source.node_id >= 0:
        settings.append(f"node.id={report.source.node_id}")
    return "kbroker start " + " ".join(f"--override {shlex.quote(each)}" for each in settings)


def _print(report: ImportReport) -> None:
    plan, contents, source = report.plan, report.plan.contents, report.source
    click.echo(f"Apache Kafka with {source.mode}, cluster {source.cluster_id or '-'}, node {source.node_id}\n")
    rows = [
        (
            each.image.name,
            uuid_to_text(each.image.topic_id),
            len(each.image.partitions),
            " ".join(f"{name}={value}" for name, value in each.image.configs.items()) or None,
            "; ".join(each.notes) or None,
        )
        for each in plan.topics
    ]
    print_table(("TOPIC", "ID", "PARTITIONS", "SETTINGS", "NOTES"), rows)
    click.echo("")
    listed("groups", [name if kind == "classic" else f"{name} ({kind})" for name, kind in report.names.groups.items()])
    listed("transactional ids", list(report.names.transactional_ids))
    listed(
        "settings of brokers, groups, client metrics",
        [
            f"{resource.name or 'all brokers'}: {name}={value}"
            for resource, values in contents.configs.items()
            for name, value in values.items()
        ],
    )
    listed(
        "quotas",
        [
            f"{', '.join(f'{kind} {name or DEFAULT}' for kind, name in entity)}: {key}={value:.15g}"
            for entity, values in contents.quotas.items()
            for key, value in values.items()
        ],
    )
    security = contents.security
    listed("users with SCRAM credentials", sorted({each.user for each in security.scram}))
    listed("principals with ACLs", sorted({each.principal for each in security.acls.values() if each is not None}))
    listed("delegation tokens", list(security.tokens))
    if contents.features is not None:
        levels = ", ".join(f"{name} {level}" for name, level in contents.features.chosen.items())
        click.echo(f"levels of features stay as they were: {levels}")
    print_remarks(
        {
            "does not come along": plan.left,
            "left as it is": report.left_aside,
            "note": report.notes,
            "to be decided first": plan.blockers,
        },
        report.copied,
    )
    if report.store is None:
        click.echo("nothing was written")
        return
    click.echo(f"wrote {report.store}\n\nNow: {start_command(report)}")
