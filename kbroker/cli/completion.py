"""`kbroker completion`: the script by which a shell completes words.  And what Tab completes where a topic or group is
named: those of the cluster that the words before it name.

A shell waits for it, and shows no error: where the cluster does not answer within a second, nothing is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from kbroker.cli.profile_option import profile_of

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
SECONDS = 1.0
PROGRAM = "kbroker"
VARIABLE = "_KBROKER_COMPLETE"
"""By which the script asks; click reads it for a program of this name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that has Tab complete in SHELL."""
    of_shell = get_completion_class(shell)
    assert of_shell is not None
    click.echo(of_shell(ctx.find_root().command, {}, PROGRAM, VARIABLE).source().rstrip())


def _completing(names: Callable[[ClusterAdmin], Iterable[str]]) -> Complete:
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from kbroker.cli.connection import DEFAULT_BOOTSTRAP, Cluster

        try:
            with ctx:
                profile = profile_of(ctx)
                default = profile.bootstrap if profile is not None else DEFAULT_BOOTSTRAP
                with Cluster.at(ctx.params.get("bootstrap") or default, SECONDS).admin() as admin:
                    found = sorted(names(admin))
        except click.ClickException:
            return []
        given = ctx.params.get(parameter.name or "") or ()
        return [CompletionItem(name) for name in found if name.startswith(incomplete) and name not in given]

    return complete


def groups_of_kinds(*kinds: str) -> Complete:
    """Groups of these kinds in ListGroups; empty as brokers say that know of no kinds."""
    return _completing(lambda admin: [row.group_id for row in admin.groups() if row.group_type.lower() in kinds])


topics = _completing(lambda admin: admin.topics())
consumer_groups = groups_of_kinds("", "classic", "consumer")
