"""`kbroker start`: read the settings, then hand over to the broker until it ends."""

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
def command(properties: str | None, overrides: tuple[str, ...]) -> int:
    """Run the broker in the foreground.

    Without a file, defaults serve a single node on 127.0.0.1:9092.  `kbroker config` lists every setting.
    """
    try:
        config = BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    from kbroker.process import run
    from kbroker.scheduling import ask_for_short_slices

    ask_for_short_slices()
    return run(config)
