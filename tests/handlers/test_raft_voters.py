"""AddRaftVoter and RemoveRaftVoter where there is no quorum to change: what Kafka 4.3.1 answers at `kraft.version` 0.

Also of `kbroker.handlers.cluster.raft_voters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers.dispatch import broker_rows, forwarding_rows, member_rows
from kbroker.protocol.api import ApiKey
from tests.handlers.admin_broker import AdminBroker

DIRECTORY = bytes(range(16))
ENDPOINT = {"name": "CONTROLLER", "host": "h", "port": 1}
NO_ADDING = "Cluster doesn't support adding voter because the kraft.version feature is 0"
NO_REMOVING = "Cluster doesn't support removing voter because the kraft.version feature is 0"
INVALID, UNSUPPORTED = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION
OTHER_CLUSTER = 'The given id "other" doesn\'t match the cluster id "{}"'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker.start(tmp_path)
    yield broker
    broker.stop()


@pytest.mark.parametrize(
    ("changes", "code", "adding", "removing"),
    [
        ({}, UNSUPPORTED, NO_ADDING, NO_REMOVING),
        ({"voter_id": -1}, INVALID, "Add voter request didn't include a valid voter",
         "Remove voter request didn't include a valid voter"),
        ({"voter_directory_id": bytes(16)}, INVALID, "Add voter request didn't include a valid voter",
         "Remove voter request didn't include a valid voter"),
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, OTHER_CLUSTER, OTHER_CLUSTER),
    ],
)  # fmt: skip
def test_a_cluster_without_a_quorum_says_so(
    broker: AdminBroker, changes: dict[str, Any], code: ErrorCode, adding: str, removing: str
) -> None:
    """kafka-metadata-quorum would be told that a request is not known, and version probes take the broker for an old
    one."""
    voter = {"cluster_id": None, "voter_id": 5, "voter_directory_id": DIRECTORY, **changes}
    cluster_id = broker.services.metadata_cache.image.cluster_id
    added = broker.ask("AddRaftVoter", 1, {**voter, "timeout_ms": 1000, "listeners": [ENDPOINT]})
    assert (added["error_code"], added["error_message"]) == (code, adding.format(cluster_id))
    removed = broker.ask("RemoveRaftVoter", 0, voter)
    assert (removed["error_code"], removed["error_message"]) == (code, removing.format(cluster_id))


def test_a_voter_needs_an_endpoint(broker: AdminBroker) -> None:
    """Nobody could reach it."""
    voter: dict[str, Any] = {"cluster_id": None, "voter_id": 5, "voter_directory_id": DIRECTORY}
    assert broker.ask("AddRaftVoter", 1, {**voter, "timeout_ms": 1000, "listeners": []})["error_code"] == INVALID


def test_a_member_of_a_zookeeper_cluster_has_neither() -> None:
    """Kafka's brokers there have none, and clients tell the release by that."""
    voters = {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
    assert voters <= {row.api_key for row in broker_rows()}
    assert voters <= {row.api_key for row in forwarding_rows()}
    assert not voters & {row.api_key for row in member_rows()}
