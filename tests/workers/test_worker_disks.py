"""Workers with several log directories, one of which fails under one worker."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka.admin import NewTopic

from kbroker.cli.main import run
from tests.broker.failing_disk import failing_disk
from tests.compat.waiting import wait_for
from tests.workers.processes import Deliveries, Workers, read_all

COUNT = 8


def leaders(workers: Workers, topic: str) -> list[int]:
    """Who leads the partitions of a topic; -1 for nobody."""
    return [each.leader for each in workers.admin.list_topics(topic, timeout=30).topics[topic].partitions.values()]


def test_the_first_directory_of_a_worker_may_fail(tmp_path: Path) -> None:
    """The worker would halt, be started again and again in vain, and take what its other disks have along."""
    folder = tmp_path / "disk-of-2"
    folder.mkdir()
    with failing_disk(folder) as disk:
        (tmp_path / "data" / "workers").mkdir(parents=True)
        (tmp_path / "data" / "workers" / "2").symlink_to(disk.path)
        dirs = {"log.dirs": f"{tmp_path}/data,{tmp_path}/other", "kbroker.disk.reserve.bytes": str(1 << 20)}
        workers = Workers(tmp_path, 2, dirs).up()
        try:
            pids = [workers.worker_pid(number) for number in (1, 2)]
            # Directories take turns: each worker leads partitions in both of its.
            pairs = [[2, 1], [2, 1], [1, 2], [1, 2]] * (COUNT // 4)
            topics = [NewTopic("one", COUNT, 1), NewTopic("two", COUNT, replica_assignment=pairs)]
            for made in workers.admin.create_topics(topics).values():
                made.result(30)
            deliveries = Deliveries(workers.bootstrap)
            deliveries.send("two", 200)
            deliveries.finish()
            on_disk = {path.name for path in disk.path.glob("*-*") if path.is_dir()}
            lost = {int(name.rpartition("-")[2]) for name in on_disk if name.startswith("one-")}
            assert 0 < len(lost) < leaders(workers, "one").count(2)
            disk.fail()
            wait_for(lambda: leaders(workers, "one").count(-1) == len(lost), "the controller to know", seconds=60)
            assert {index for index, leader in enumerate(leaders(workers, "one")) if leader == -1} == lost
            deliveries.send("two", 200)
            deliveries.finish()
            assert deliveries.failed == []
            assert 2 in leaders(workers, "two")
            workers.wait_until_ready()
            assert 'kbroker_worker_restarts{worker="2"} 0' in workers.metrics()
            assert workers.worker_pid(1) == pids[0]
            # A start without the disk.
            workers.stop()
            workers.up()
            assert {index for index, leader in enumerate(leaders(workers, "one")) if leader == -1} == lost
            assert len(read_all(workers.bootstrap, "group", ["two"], set(deliveries.acknowledged))) == 400
            workers.stop()
            disk.repair()
            workers.up()
            wait_for(lambda: -1 not in leaders(workers, "one"), "the controller to know", seconds=60)
        finally:
            workers.close()


def test_a_disk_of_several_workers_that_is_not_mounted_is_missed_at_each_start(tmp_path: Path) -> None:
    """The second start would take what the first one made there for the disk, and acknowledged records be gone."""
    other, away = tmp_path / "other", tmp_path / "away"
    workers = Workers(tmp_path, 2, {"log.dirs": f"{tmp_path}/data,{other}"}).up()
    try:
        for made in workers.admin.create_topics([NewTopic("one", COUNT, 1)]).values():
            made.result(30)
        deliveries = Deliveries(workers.bootstrap)
        deliveries.send("one", 200)
        deliveries.finish()
        lost = sum(1 for folder in (other, other / "workers" / "2") for _ in folder.glob("one-*"))
        assert 0 < lost < COUNT
        assert workers.stop() == 0
        other.rename(away)
        for _ in range(2):
            workers.up()
            assert leaders(workers, "one").count(-1) == lost
            assert workers.stop() == 0
        assert not list(other.rglob("one-*"))
        shutil.rmtree(other)
        away.rename(other)
        workers.up()
        assert len(read_all(workers.bootstrap, "group", ["one"], set(deliveries.acknowledged))) == 200
        # Its data are gone for good: somebody has to say so.
        assert workers.stop() == 0
        shutil.rmtree(other)
        settings = ["--override", f"log.dirs={tmp_path}/data,{other}", "--override", "kbroker.workers=2"]
        assert run(["format", "--ignore-formatted", *settings]) == 0
        workers.up()
        assert leaders(workers, "one").count(-1) == 0
    finally:
        workers.close()
