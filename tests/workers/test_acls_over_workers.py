"""ACLs on a host of several workers: whichever is asked makes them, and all go by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compat.waiting import wait_for
from tests.scenarios.wire import Wire
from tests.security.acl.acl_requests import EVERYTHING, rule
from tests.workers.processes import Workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def test_every_worker_goes_by_the_rules_that_any_of_them_made(tmp_path: Path) -> None:
    """A client would get from one process of a host what another refuses it."""
    host = Workers(tmp_path, 3, SETTINGS).up()

    def ask(worker: int, api: str, version: int, source: str = "127.0.0.1", **values: Any) -> Any:
        wire = Wire(host.port + worker, source=source)
        try:
            return wire.ask(api, version, values)
        finally:
            wire.close()

    def is_refused(worker: int) -> bool:
        topics = [{"name": "t"}]
        found = ask(worker, "Metadata", 9, "127.0.0.2", topics=topics, allow_auto_topic_creation=False)
        return int(found.topics[0].error_code) == 29

    try:
        topic = {"name": "t", "num_partitions": 3, "replication_factor": 3}
        assert ask(0, "CreateTopics", 7, topics=[topic], timeout_ms=30_000).topics[0].error_code == 0
        own = {"principal": "User:ANONYMOUS", "operation": 2}
        for worker, values in enumerate((rule(**own, host="127.0.0.1"), rule(**own, resource_name="other"))):
            made = ask(2 - worker, "CreateAcls", 3, creations=[values])
            assert [each.error_code for each in made.results] == [0]
        wait_for(lambda: all(map(is_refused, range(3))), "all workers to go by the rules")
        for worker in range(3):
            assert len(ask(worker, "DescribeAcls", 3, **EVERYTHING).resources) == 2
        deleted = ask(1, "DeleteAcls", 3, filters=[{**EVERYTHING, "resource_name_filter": "t"}])
        assert len(deleted.filter_results[0].matching_acls) == 1
        wait_for(lambda: not any(map(is_refused, range(3))), "all workers to forget the rule")
        host.stop()
        host.up()
        assert len(ask(0, "DescribeAcls", 3, **EVERYTHING).resources) == 1
    finally:
        host.stop()
