"""All actions, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.console.manage import (
    acls,
    groups,
    produce,
    quotas,
    replicas,
    settings,
    share_groups,
    topics,
    transactions,
    users,
)
from kbroker.console.manage.plan import Action

ACTIONS: Mapping[str, Action] = {
    **topics.ACTIONS,
    **replicas.ACTIONS,
    **settings.ACTIONS,
    **produce.ACTIONS,
    **groups.ACTIONS,
    **share_groups.ACTIONS,
    **transactions.ACTIONS,
    **quotas.ACTIONS,
    **users.ACTIONS,
    **acls.ACTIONS,
}
