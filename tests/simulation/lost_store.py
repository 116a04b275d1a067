"""A broker whose metadata store is lost: it is made anew of the directories, as `kbroker metadata rebuild` does,
and all records are where they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.startup.metadata_rebuild import plan, survey, write
from kbroker.storage.directories.log_dirs import describe, open_directories
from kbroker.storage.files.filesystem import FileSystem
from tests.simulation.disk import METADATA
from tests.simulation.reading_back import read_whole

if TYPE_CHECKING:
    from tests.simulation.world import World


async def lose_store(world: World) -> None:
    """Lose the store of the broker, which has stopped; start it with one that is made anew; read what it has."""
    for folder in map(Path, world.log_dirs(1)):
        for each in folder.glob(f"{METADATA}*"):
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()
    world.judge.note("the metadata of broker 1 are lost, and made anew")
    rebuild(world)
    await world.start(1)
    for topic in world.topics.values():
        for number in range(topic.partitions):
            partition = (topic.name, number)
            world.judge.read_back(partition, *await read_whole(world, partition, partition))


def rebuild(world: World) -> None:
    """What the command does."""
    files, config = FileSystem(), world.config(1)
    directories = open_directories(files, config.log_dirs)
    try:
        found = survey(files, [each.path for each in directories])
        topics = plan(found.partitions, config, add_missing=True, keep_everything=True)
        cluster_id = describe(directories).cluster_id
        if cluster_id is None:
            world.judge.fail("the directories name no cluster")
        write(files, directories[0].path, cluster_id, topics, found.partitions)
    finally:
        for directory in directories:
            directory.release()
    lacking = set(world.topics) - {each.image.name for each in topics}
    if lacking:
        world.judge.fail(f"{lacking} are not found in the directories")
