"""`kbroker help`: what `--help` behind a command says, by the words before it."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def _below(ctx: click.Context, words: tuple[str, ...]) -> click.Context:
    """The command that words name below the outermost.  UsageError where there is none."""
    at = ctx.find_root()
    for word in words:
        if not isinstance(at.command, click.Group):
            raise click.UsageError(f"{at.command_path} has no commands of its own, such as {word!r}", ctx)
        _, found, _ = at.command.resolve_command(at, [word])
        if found is None:  # As a shell asks, which shows no error.
            raise click.UsageError(f"No such command {word!r}", ctx)
        at = click.Context(found, info_name=word, parent=at)
    return at


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    given = ctx.params.get(parameter.name or "") or ()
    try:
        at = _below(ctx, given)
    except click.UsageError:
        return []
    names = at.command.list_commands(at) if isinstance(at.command, click.Group) else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("words", metavar="[COMMAND]…", nargs=-1, shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command, such as `kbroker help topics create`, or list all."""
    click.echo(_below(ctx, words).get_help())
