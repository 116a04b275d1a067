"""The world changes between two slices of a request: what is answered and kept stays right."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker._fast.base.slices import Slices
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation, NewPartitions, NewTopic
from kbroker.errors import ErrorCode, IllegalGenerationError
from kbroker.handlers.groups.offsets import PORTION, handle_offset_commit
from kbroker.handlers.topics.metadata import handle_metadata
from kbroker.metadata.image import ConfigResource, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.metadata.store import StoreCalls
from kbroker.schemas import message
from tests.handlers.admin_broker import AdminBroker, Context
from tests.services import put

TOPICS = 20


async def broken_up(directory: Path, executor: ThreadPoolExecutor | None = None) -> AdminBroker:
    """A broker whose work rests at every step, with some topics."""
    broker = AdminBroker.start(directory)
    services = broker.services
    slices = Slices(asyncio.get_running_loop(), 0)
    settings: Any = services.settings
    controller = LocalController(services.metadata_cache, broker.store, settings, 1, slices, StoreCalls(executor))
    put(services, slices=slices, controller=controller, administration=controller)
    await services.controller.create_topics([NewTopic(f"t{number:02d}", 3) for number in range(TOPICS)])
    return broker


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(bounded())


def metadata(broker: AdminBroker) -> tuple[Any, asyncio.Future[Any]]:
    """Metadata of all topics, begun."""
    context: Any = Context(broker.services, 3, 8, broker.connection)
    context.cacheable = False
    return context, asyncio.ensure_future(handle_metadata(context, message("MetadataRequest")(topics=None)))


def test_metadata_do_not_keep_what_changed_meanwhile(tmp_path: Path) -> None:
    """Every later request would be told of a topic as it was, or of one that is gone."""

    async def main() -> None:
        broker = await broken_up(tmp_path)
        cache, topics = broker.services.metadata_cache, broker.services.controller
        context, asked = metadata(broker)
        for _ in range(TOPICS):
            await asyncio.sleep(0)
        gone = cache.topic("t19")
        assert gone is not None and not asked.done()
        await topics.create_partitions([NewPartitions("t18", 9)])
        await topics.delete_topics([gone.topic_id])
        seen = {topic.name: len(topic.partitions) for topic in (await asked).topics}
        assert len(seen) == TOPICS and seen["t18"] == 3  # as it was when it was asked
        assert not context.cacheable
        context, asked = metadata(broker)
        seen = {topic.name: len(topic.partitions) for topic in (await asked).topics}
        assert seen == {f"t{number:02d}": 3 for number in range(18)} | {"t18": 9}
        assert context.cacheable
        broker.stop()

    run(main())


def test_two_requests_for_one_name_make_one_topic(tmp_path: Path) -> None:
    """Both would pass the check, and one would fail in the store with an error of the disk."""

    async def main() -> None:
        broker = await broken_up(tmp_path)
        outcomes = await asyncio.gather(
            *(broker.services.controller.create_topics([NewTopic("new", 2)]) for _ in range(3))
        )
        codes = [None if row.error is None else row.error.code for (row,) in outcomes]
        assert codes == [None, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_ALREADY_EXISTS]
        broker.stop()

    run(main())


def test_changes_of_one_topic_do_not_undo_each_other(tmp_path: Path) -> None:
    """Two tools that set a setting each would be told of success, and one setting would be lost."""

    async def main() -> None:
        broker = await broken_up(tmp_path)
        controller, cache = broker.services.controller, broker.services.metadata_cache
        names = ("retention.ms", "segment.ms", "flush.ms")
        await asyncio.gather(
            *(
                controller.alter_configs(
                    [ConfigAlteration(ConfigResource(2, "t00"), [ConfigEdit(name, EditOperation.SET, "5000")])]
                )
                for name in names
            )
        )
        topic = cache.topic("t00")
        assert topic is not None and topic.configs == dict.fromkeys(names, "5000")
        broker.stop()

    run(main())


def test_a_leader_lost_while_a_topic_grows_stays_lost(tmp_path: Path) -> None:
    """A partition whose disk has failed would be led again, without a log."""

    async def main() -> None:
        executor = ThreadPoolExecutor(1)
        broker = await broken_up(tmp_path, executor)
        cache = broker.services.metadata_cache
        growing = asyncio.ensure_future(broker.services.controller.create_partitions([NewPartitions("t00", 200)]))
        for _ in range(50):
            await asyncio.sleep(0)
        old = cache.topic("t00")
        assert old is not None and not growing.done()
        failed = PartitionImage(0, -1, 1, (1,), (), 1, (1,))
        new = TopicImage(old.name, old.topic_id, (failed, *old.partitions[1:]), False, old.configs)
        delta = MetadataDelta(changed=(TopicChange(old, new),))
        cache.publish(cache.image.with_topics(delta), delta)
        await growing
        grown = cache.topic("t00")
        assert grown is not None and len(grown.partitions) == 200
        assert grown.partitions[0] == failed
        executor.shutdown()
        broker.stop()

    run(main())


def test_the_loop_goes_on_while_the_store_writes(tmp_path: Path) -> None:
    """A transaction of 5,000 topics, or a slow fsync, would stop every client."""

    async def main() -> None:
        executor = ThreadPoolExecutor(1)
        broker = await broken_up(tmp_path, executor)
        loop = asyncio.get_running_loop()
        released, begun = threading.Event(), asyncio.Event()
        write = broker.store.write

        class SlowStore:
            def write(self, delta: Any) -> None:
                loop.call_soon_threadsafe(begun.set)
                released.wait()
                write(delta)

        broker.services.controller._store = SlowStore()  # type: ignore[assignment]
        creating = asyncio.ensure_future(broker.services.controller.create_topics([NewTopic("new", 2)]))
        await begun.wait()
        assert broker.services.metadata_cache.topic("new") is None
        _, asked = metadata(broker)
        assert len((await asked).topics) == TOPICS
        released.set()
        await creating
        assert broker.services.metadata_cache.topic("new") is not None
        executor.shutdown()
        broker.stop()

    run(main())


def test_a_commit_that_loses_its_generation_half_way_says_so_for_the_rest(tmp_path: Path) -> None:
    """A member that was dropped meanwhile would write over what the partitions' new owner has committed."""

    async def main() -> None:
        broker = await broken_up(tmp_path)
        await broker.services.controller.create_topics(
            [NewTopic("wide", PORTION + 50), NewTopic("__consumer_offsets", 1)]
        )
        portions: list[int] = []

        def commit(who: Any, commits: list[Any], version: int) -> list[ErrorCode]:
            if portions:
                raise IllegalGenerationError()
            portions.append(len(commits))
            return [ErrorCode.NONE] * len(commits)

        put(broker.services, group_coordinator=SimpleNamespace(commit_offsets=commit))
        request = message("OffsetCommitRequest")
        rows = [
            request.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
            for index in range(PORTION + 50)
        ]
        topics = [request.OffsetCommitRequestTopic(name="wide", partitions=rows)]
        context: Any = Context(broker.services, 8, 7, broker.connection)
        answer = await handle_offset_commit(context, request(group_id="g", topics=topics))
        codes = [row.error_code for row in answer.topics[0].partitions]
        assert portions == [PORTION]
        assert codes == [ErrorCode.NONE] * PORTION + [ErrorCode.ILLEGAL_GENERATION] * 50
        broker.stop()

    run(main())
