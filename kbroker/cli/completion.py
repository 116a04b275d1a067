"""What Tab completes where a topic or a group is named: those of the cluster that the words before it name.

A shell waits for it, and shows no error: where the cluster does not answer within a second, nothing is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kbroker.cli.groups.wire_groups import every_group
from kbroker.cli.profile_option import profile_of

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
SECONDS = 1.0
OF_CONSUMERS = ("", "classic", "consumer")
"""Types in ListGroups; empty as brokers say that know of no types."""


def _completing(names: Callable[[Cluster], Iterable[str]]) -> Complete:
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from kbroker.cli.connection import DEFAULT_BOOTSTRAP, wire_cluster

        try:
            with ctx:
                profile = profile_of(ctx)
                default = profile.bootstrap if profile is not None else DEFAULT_BOOTSTRAP
                with wire_cluster(ctx.params.get("bootstrap") or default, SECONDS) as cluster:
                    found = sorted(names(cluster))
        except click.ClickException:
            return []
        given = ctx.params.get(parameter.name or "") or ()
        return [CompletionItem(name) for name in found if name.startswith(incomplete) and name not in given]

    return complete


def _groups_of(*kinds: str) -> Complete:
    return _completing(lambda cluster: [name for name, kind in every_group(cluster) if kind in kinds])


topics = _completing(lambda cluster: cluster.list_topics())
consumer_groups = _groups_of(*OF_CONSUMERS)
share_groups = _groups_of("share")
streams_groups = _groups_of("streams")
