"""A topic that is deleted while a worker starts (`kbroker.assembly.membership.workers`): its logs were loaded."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from kbroker.assembly.membership.choice import membership_of
from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership
from kbroker.assembly.membership.workers import WorkersMembership
from kbroker.broker import Broker
from kbroker.cluster.requests import NewTopic, ReplicaReport
from kbroker.cluster.workers.controller_link import Held
from kbroker.cluster.workers.worker_slot import WorkerSlot
from kbroker.config import BrokerConfig

TOPICS = ("kept", "deleted")


class LateDeletion(WorkersMembership):
    """A worker whose controller deletes a topic just as the worker says what its logs hold."""

    topic = ""

    async def report_logs(self) -> None:
        report_logs = self._worker.report_logs

        async def deleted_amid(report: ReplicaReport, held: Held) -> None:
            await report_logs(report, held)
            if self.topic:
                deleted = self._parts.cache.image.topics[self.topic].topic_id
                (gone,) = await self.controller.delete_topics([deleted])
                assert gone.error is None

        self._worker.report_logs = deleted_amid  # type: ignore[method-assign]
        await super().report_logs()


@contextmanager
def office() -> Iterator[WorkerSlot]:
    """The place of a host's only worker."""
    address = f"kbroker-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"\0{address}")
        sock.listen(4)
        yield WorkerSlot(1, 1, f"@{address}", sock.dup().detach())


def start_and_stop(folder: Path, *, topic: str = "", creates: bool = False) -> None:
    values = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "none"}

    def make(parts: BrokerParts, slot: WorkerSlot) -> ClusterMembership:
        made = membership_of(parts, slot=slot)
        assert isinstance(made, WorkersMembership)
        late = LateDeletion(parts, made._worker)
        late.topic = topic
        return late

    async def main() -> None:
        with office() as slot:
            config = BrokerConfig.from_mapping(values)
            broker = Broker(config, asyncio.get_running_loop(), make_membership=lambda parts: make(parts, slot))
            try:
                await broker.start()
                if creates:
                    made = await broker.services.controller.create_topics([NewTopic(name, 1, 1) for name in TOPICS])
                    assert not any(each.error for each in made)
            finally:
                await broker.stop()

    uvloop.run(main())


@pytest.mark.parametrize("topic", TOPICS)
def test_the_log_of_a_topic_that_is_deleted_while_a_worker_starts_goes_with_it(tmp_path: Path, topic: str) -> None:
    """It would take room for good, and a topic of that name that is made later would find the records of the one
    before."""
    start_and_stop(tmp_path, creates=True)
    assert {each.name for each in tmp_path.iterdir()} >= {"kept-0", "deleted-0"}
    start_and_stop(tmp_path, topic=topic)
    there = {each.name for each in tmp_path.iterdir()}
    (other,) = set(TOPICS) - {topic}
    assert f"{other}-0" in there and f"{topic}-0" not in there, there
