"""What metrics say of replicas: the numbers that people are woken by."""

from __future__ import annotations

from pathlib import Path

from kbroker._fast.base.slices import Slices
from kbroker.assembly.replication_figures import own_controller_figures, replica_figures
from kbroker.metrics.cluster import FAMILIES
from tests.replication.led_partition import OURS, THEIRS, Cluster, run

PREFIX = "kbroker_"


def test_replicas_out_of_sync_are_counted_as_kafka_counts_them(tmp_path: Path) -> None:
    """An alert would stay silent while acks=all is refused, or cry while a replica is only on its way."""

    async def scenario(cluster: Cluster) -> None:
        services = cluster.broker.services

        async def figures() -> dict[str, object]:
            image = services.metadata_cache.image
            found = {
                **await replica_figures(services.replica_manager, Slices().pace()),
                **await own_controller_figures(image, Slices().pace()),
            }
            assert found.keys() <= {family.name for family in FAMILIES}
            return {name.removeprefix(PREFIX): value for name, value in found.items()}

        def counts(found: dict[str, object]) -> tuple[object, ...]:
            kinds = ("under_replicated", "under_min_isr", "at_min_isr", "reassigning")
            return tuple(found[f"{kind}_partitions"] for kind in kinds)

        found = await figures()
        assert (found["replica_leaders"], found["replicas"], found["controller_active"]) == (1, 1, 1)
        assert counts(found) == (0, 0, 1, 0), "two of two in sync, as min.insync.replicas asks"
        cluster.place(isr=(OURS,))
        assert counts(await figures()) == (1, 1, 0, 0)
        cluster.place(replicas=(OURS, THEIRS, 3), isr=(OURS, THEIRS), adding_replicas=(3,))
        assert counts(await figures()) == (0, 0, 1, 1), "a replica that is being added is not missed"
        cluster.place(replicas=(OURS, THEIRS, 3), isr=(OURS, THEIRS, 3), adding_replicas=())
        found = await figures()
        assert counts(found) == (0, 0, 0, 0)
        assert found["controller_preferred_replica_imbalance"] == 0
        cluster.place(replicas=(THEIRS, OURS), isr=(OURS, THEIRS))
        assert (await figures())["controller_preferred_replica_imbalance"] == 1
        cluster.place(leader=THEIRS, leader_epoch=1)
        found = await figures()
        assert (found["replica_leaders"], found["replicas"]) == (0, 1)
        cluster.place(leader=-1, leader_epoch=2, isr=())
        assert (await figures())["controller_offline_partitions"] == 1

    run(tmp_path, scenario, **{"min.insync.replicas": "2"})
