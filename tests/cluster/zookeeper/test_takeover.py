"""What clients ask of a controller that has been elected and reads the cluster still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.cluster_controller import ClusterController
from kbroker.cluster.zookeeper.session import Watch
from kbroker.cluster.zookeeper.term import TermState
from kbroker.config import BrokerConfig
from kbroker.handlers.topics.topics import handle_create_topics
from kbroker.schemas import wire
from tests.cluster.zookeeper.fake import FakeSession
from tests.cluster.zookeeper.office import Cluster, Office, in_cluster
from tests.unbroken import UNBROKEN

NOT_CONTROLLER = 41


class _NoPace:
    def __await__(self) -> Iterator[None]:
        return iter(())


class Reading(FakeSession):
    """A session whose controller reads for as long as the test wants."""

    go_on: asyncio.Event

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        if path == paths.TOPICS:
            await self.go_on.wait()
        return await super().children(path, watch)


@pytest.mark.parametrize(("timeout_ms", "code"), [(60_000, 0), (1, NOT_CONTROLLER)])
def test_a_request_waits_for_a_controller_that_takes_over(timeout_ms: int, code: int) -> None:
    """Metadata name the new controller while it tells brokers of the cluster: a topic that is created just after an
    election would be refused."""

    async def body(cluster: Cluster) -> None:
        office = cluster.office
        office.close()
        session = Reading(cluster.ensemble)
        session.go_on = asyncio.Event()
        cluster.ensemble.session, made = (lambda: session), cluster.ensemble.session  # type: ignore[method-assign]
        second = Office(cluster, 2)
        cluster.ensemble.session = made  # type: ignore[method-assign]
        cluster.offices = [second]
        office.session.drop()
        while second.term is None:
            await asyncio.sleep(0)
        unused: Any = None
        controller = ClusterController(2, session, unused, unused, unused, second.configs, unused, UNBROKEN)
        controller.term = second.term
        assert controller.term.state is TermState.TAKING_OVER
        services = SimpleNamespace(
            administration=controller,
            slices=SimpleNamespace(pace=_NoPace),
            quotas=None,
            config=BrokerConfig.from_mapping({}),
        )
        ctx: Any = SimpleNamespace(services=services, api_version=7, gate=None)
        asked = wire.CreateTopicsRequest
        topic = asked.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        answer = asyncio.ensure_future(handle_create_topics(ctx, asked(topics=[topic], timeout_ms=timeout_ms)))
        for _ in range(20):
            await asyncio.sleep(0)
        if code:
            await answer
        assert answer.done() is (code != 0)
        session.go_on.set()
        assert [each.error_code for each in (await answer).topics] == [code]

    in_cluster(body)
