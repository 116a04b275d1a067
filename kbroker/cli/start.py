"""`kbroker start`: read the settings, then hand over to the broker, or to its workers, until it ends."""

from __future__ import annotations

import click

from kbroker.config import BrokerConfig, ConfigError


@click.command("start")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one setting; wins over file and environment.",
)
@click.option("--workers", metavar="N|auto", help="Serve with N processes, or one for each core (kbroker.workers).")
@click.option(
    "--accept-strays",
    is_flag=True,
    help="Set aside partitions that the metadata store does not know, even if these are most (kbroker.accept.strays).",
)
@click.option("--slot", hidden=True, help="A worker's slot; its supervisor says it.")
@click.option("--parent", type=int, default=0, hidden=True, help="The supervisor's process id.")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    workers: str | None,
    accept_strays: bool,
    slot: str | None,
    parent: int,
) -> int:
    """Run the broker in the foreground.

    Without a file, defaults serve a single node on 127.0.0.1:9092.  `kbroker config` lists every setting.
    """
    if workers is not None:
        overrides = (*overrides, f"kbroker.workers={workers}")
    if accept_strays:
        overrides = (*overrides, "kbroker.accept.strays=true")
    try:
        config = BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    if slot is not None:
        return _work(config, slot, parent)
    from kbroker.cluster.workers.worker_slot import WorkerSlotError, check_count, worker_count

    count = worker_count(config)
    try:
        check_count(config, count)
    except WorkerSlotError as error:
        raise click.ClickException(str(error)) from None
    if count > 1:
        from kbroker.supervision.supervisor import run as supervise

        arguments = [] if properties is None else [properties]
        for override in overrides:
            arguments += ["--override", override]
        return supervise(config, arguments, count)
    from kbroker.host.scheduling import ask_for_short_slices
    from kbroker.supervision.process import run

    ask_for_short_slices()
    return run(config)


def _work(config: BrokerConfig, slot: str, parent: int) -> int:
    from kbroker.cluster.workers.worker_slot import WorkerSlot
    from kbroker.host.scheduling import ask_for_short_slices
    from kbroker.supervision.orphans import stop_with_parent
    from kbroker.supervision.process import run

    stop_with_parent(parent)
    ask_for_short_slices()
    return run(config, WorkerSlot.parse(slot))
