"""What `kbroker import` and `kbroker export` have in common: options about directories, and what a run prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli.output import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbroker.migration.copying import Copied

SHOWN = 20

directories_argument = click.argument(
    "paths", metavar="DIRECTORY...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False)
)
to_option = click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="DIRECTORY",
    help="Copy into this new directory, one for all or, given as often, one for each; the originals stay as they are.",
)
link_option = click.option(
    "--link", is_flag=True, help="With --to: give finished segments a second name instead of copying them."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what there is, and write nothing.")


def listed(title: str, names: list[str]) -> None:
    """A line with how many there are and the names of the first; none where there are none."""
    if not names:
        return
    more = f" and {len(names) - SHOWN} more (--json has all)" if len(names) > SHOWN else ""
    click.echo(f"{len(names)} {title}: {', '.join(names[:SHOWN])}{more}")


def print_remarks(remarks: Mapping[str, Iterable[str]], copied: Copied | None) -> None:
    """A line for each remark, behind its title, and what was copied."""
    for title, texts in remarks.items():
        for text in texts:
            click.echo(f"{title}: {text}")
    if copied is not None:
        click.echo(
            f"copied {copied.files} files ({size_text(copied.size_bytes)}), gave {copied.linked_files} a second name "
            f"({size_text(copied.linked_bytes)})"
        )
