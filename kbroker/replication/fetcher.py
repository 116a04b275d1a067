"""Copies the partitions that this broker follows from one leader: one connection, one request under way.

    asked     where each partition's log ends, with the epoch of its last record
    records   appended as they are, if the partition still is what it was when it was asked for
    diverging the log is cut to where it parts from the leader's (KIP-595), and asked for again
    error 1   the log is cut to the leader's end, or dropped where the leader's begins behind it; cut to the high
              watermark where the leader does not know the epoch
    error 74  this leader epoch is over: the partition waits for the controller's next word
    others    the partition is left out for a while, longer each time (up to `replica.fetch.backoff.ms`)

Below IBP 2.7 there is no divergence in a fetch: each epoch begins with OffsetForLeaderEpoch, and nothing is fetched
before the log is cut to what that says.  A log without epochs (messages of the older formats have none) is cut to its
high watermark at the beginning of each leader epoch: records behind it may differ from the leader's.

Invariant: an answer is applied only while the partition still follows in the leader epoch of the request, and its log
still ends where the request said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.log.replica_fields import FollowedFields, unsettled
from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.client import NodeError
from kbroker.cluster.partition_reader import offsets_request
from kbroker.errors import ErrorCode, KafkaError
from kbroker.outage import Outage, Outages
from kbroker.replication.follower_session import Ask, FollowerSession, Key
from kbroker.replication.log_cut import cut_log
from kbroker.replication.partition import Role
from kbroker.schemas import schema, wire
from kbroker.storage.log.replicated_append import portions
from kbroker.types import EARLIEST, LATEST, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.client import NodeClient
    from kbroker.cluster.protocol_version import ProtocolVersion
    from kbroker.replication.partition import Partition
    from kbroker.replication.replication_traffic import ReplicationTraffic

logger = logging.getLogger("kbroker.replication.fetcher")

LAST_VERSION_BY_NAME = schema("FetchRequest").last_version("topics.topic")
FIRST_VERSION_WITH_STATE = schema("FetchRequest").first_version("replica_state")
FIRST_VERSION_WITH_LAST_EPOCH = schema("FetchRequest").first_version("topics.partitions.last_fetched_epoch")
FIRST_VERSION_WITH_ONE_OFFSET = schema("ListOffsetsResponse").first_version("topics.partitions.offset")
FIRST_BACKOFF_SECONDS = 0.02
# A throttle may be lifted while a partition waits for it.
LONGEST_THROTTLE_SECONDS = 0.5
MOST_NAMED = 10

FetchRequest = wire.FetchRequest


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """`replica.fetch.*`; seconds and bytes."""

    node_id: int
    protocol: ProtocolVersion
    wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_seconds: float = 1.0


class _Followed(FollowedFields):
    """A partition in the table of a fetcher.  `key`: by which the session knows it."""

    __slots__ = ("failures", "key")

    partition: Partition

    def __init__(self, partition: Partition, has_to_truncate: bool) -> None:
        super().__init__(partition, has_to_truncate)
        self.failures = 0
        self.key: Key = (partition.topic, partition.topic_id, partition.index)

    def asks(self, max_bytes: int, truncates_on_fetch: bool) -> Ask:
        """What is to be asked for by now, which is noted."""
        partition = self.partition
        log = partition.log
        end, start, epoch = log.log_end_offset, log.log_start_offset, partition.leader_epoch
        last_epoch = log.latest_epoch if truncates_on_fetch else NO_LEADER_EPOCH
        self.note_asked(end, start, epoch, last_epoch, max_bytes)
        return Ask(*self.key, epoch, end, last_epoch, start, max_bytes)


class FollowedRow(NamedTuple):
    """`lag`: committed records that are not here, None where no answer has come yet; `failures`: in a row."""

    lag: int | None
    failures: int


class ReplicaFetcher:
    """Copies from the leader behind `client`.  `broker_epoch()`: this broker's by now.

    `failed(partition)` is called when the disk does not take what came.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: NodeClient,
        settings: Callable[[], FetcherSettings],
        broker_epoch: Callable[[], int],
        pace: Callable[[], Pace | None] = lambda: None,
        traffic: ReplicationTraffic | None = None,
    ) -> None:
        self._loop = loop
        self.client = client
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._pace = pace
        self._traffic = traffic
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, _Followed] = {}
        self._names: dict[bytes, str] | None = None
        self._changed = asyncio.Event()
        self._failures = 0
        # A leader that is away for a moment, as in a rolling restart, is no reason to warn.
        self._outage = Outage(logger, logging.INFO, loop.time)
        self._defects = Outage(logger, logging.ERROR, loop.time)
        self._outages = Outages(logger, now=loop.time)
        self._fenced: list[Partition] = []
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._followed

    def partitions(self) -> list[Partition]:
        """What it copies."""
        return [each.partition for each in self._followed.values()]

    def rows(self) -> Iterable[FollowedRow]:
        """How each of them stands."""
        return [FollowedRow(each.partition.behind, each.failures + self._failures) for each in self._followed.values()]

    def add(self, partition: Partition) -> None:
        """Copy a partition from now on."""
        self.remove(partition.topic_partition)
        self._followed[partition.topic_partition] = _Followed(partition, self._has_to_truncate(partition))
        self._names = None
        self._changed.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def _has_to_truncate(self, partition: Partition) -> bool:
        """Whether nothing may be fetched before the log was cut.  Once in an epoch: what came in it is the leader's."""
        if partition.agrees_in_epoch == partition.leader_epoch:
            return False
        return partition.log.latest_epoch < 0 or not self._settings().protocol.truncates_on_fetch

    def remove(self, name: TopicPartition) -> bool:
        """Copy it no longer; whether it was copied."""
        followed = self._followed.pop(name, None)
        if followed is None:
            return False
        self._session.drop(followed.key)
        self._names = None
        return True

    def close(self) -> None:
        """Stop."""
        self._followed.clear()
        self.client.close()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # -- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except NodeError as error:
                self._session.reset()
                self._failures += 1
                seconds = self._backoff(self._failures)
                self._outage.failed("cannot fetch, the next attempt is in %.2f s: %s", seconds, error)
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A defect; the partitions must not stay behind for good because of it.
                self._defects.failed("a fetch failed: %r", error, error=error)
                self._session.reset()
                await asyncio.sleep(self._settings().backoff_seconds)

    async def _round(self) -> None:
        now, settings = self._loop.time(), self._settings()
        changed = self._unsettled(now, settings)
        to_truncate = [each for each in changed if each.has_to_truncate and each.retry_at <= now]
        if to_truncate:
            await self._truncate(to_truncate)
            changed = self._unsettled(now, settings)
        for each in changed:
            self._settle(each, now, settings)
        if not len(self._session):
            await self._wait(now)
            return
        version = settings.protocol.fetch
        if not self._session.all_have_ids:
            version = min(version, LAST_VERSION_BY_NAME)
        answer = await self.client.send(self._request(settings, version), version)
        self._outage.over("fetches again")
        self._failures = 0
        if answer.error_code:
            logger.info("the fetch session begins anew: error %d", answer.error_code)
            self._session.reset()
            return
        await self._apply(answer, version)
        self._defects.over("fetches succeed again")

    def _unsettled(self, now: float, settings: FetcherSettings) -> list[_Followed]:
        return unsettled(self._followed, now, settings.max_bytes, settings.protocol.truncates_on_fetch)

    def _settle(self, each: _Followed, now: float, settings: FetcherSettings) -> None:
        """Has the next request ask for a partition as it stands, or not at all."""
        traffic = self._traffic
        is_left_out = each.retry_at > now or each.has_to_truncate
        if not is_left_out and traffic is not None:
            is_left_out = traffic.holds_back_leader(each.partition, in_sync=each.partition.behind == 0)
            if is_left_out:
                each.retry_at = now + min(LONGEST_THROTTLE_SECONDS, traffic.follower.wait_ms() / 1000)
        if is_left_out:
            each.is_asked = False
            self._session.drop(each.key)
        else:
            self._session.want(each.key, each.asks(settings.max_bytes, settings.protocol.truncates_on_fetch))

    async def _wait(self, now: float) -> None:
        """Until a partition is added, or one that was left out is due."""
        self._changed.clear()
        due = min((each.retry_at for each in self._followed.values()), default=None)
        try:
            async with asyncio.timeout(None if due is None else max(due - now, 0.001)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _request(self, settings: FetcherSettings, version: int) -> wire.FetchRequest:
        names = self._session.next()
        topics: dict[tuple[str, bytes], list[wire.FetchRequest.FetchPartition]] = {}
        for ask in names.sent:
            row = FetchRequest.FetchPartition(
                partition=ask.partition,
                current_leader_epoch=ask.leader_epoch,
                fetch_offset=ask.offset,
                last_fetched_epoch=ask.last_epoch if version >= FIRST_VERSION_WITH_LAST_EPOCH else -1,
                log_start_offset=ask.log_start_offset,
                partition_max_bytes=ask.max_bytes,
            )
            topics.setdefault((ask.topic, ask.topic_id), []).append(row)
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for topic, topic_id, index in names.forgotten:
            forgotten.setdefault((topic, topic_id), []).append(index)
        request = FetchRequest(
            max_wait_ms=settings.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=names.session_id,
            session_epoch=names.epoch,
            topics=[
                FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=rows)
                for (topic, topic_id), rows in topics.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=rows)
                for (topic, topic_id), rows in forgotten.items()
            ],
        )
        if version >= FIRST_VERSION_WITH_STATE:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=settings.node_id, replica_epoch=self._broker_epoch()
            )
        else:
            request.replica_id = settings.node_id
        return request

    # -- what an answer says ------------------------------------------------------------------------------------------

    async def _apply(self, answer: wire.FetchResponse, version: int) -> None:
        asked = self._session.known
        self._session.answered(answer.session_id)
        pace = self._pace()
        for topic in answer.responses:
            name = topic.topic if version <= LAST_VERSION_BY_NAME else self._name_of(topic.topic_id)
            for row in topic.partitions:
                if pace is not None:
                    await pace
                each = self._followed.get(TopicPartition(name or "", row.partition_index))
                if each is None:
                    continue
                ask = asked.get((each.partition.topic, each.partition.topic_id, row.partition_index))
                if ask is not None and self._is_as_asked(each.partition, ask):
                    await self._apply_one(each, ask, row)
        self._tell_fenced()

    def _tell_fenced(self) -> None:
        """One line for all: a broker that is gone costs thousands of partitions their epoch at once."""
        fenced, self._fenced = self._fenced, []
        if fenced:
            shown = ", ".join(f"{each} (epoch {each.leader_epoch})" for each in fenced[:MOST_NAMED])
            more = ", …" if len(fenced) > MOST_NAMED else ""
            logger.info(
                "%d partitions wait for the controller, as their epochs are over: %s%s", len(fenced), shown, more
            )

    def _name_of(self, topic_id: bytes) -> str | None:
        if self._names is None:
            self._names = {each.partition.topic_id: each.partition.topic for each in self._followed.values()}
        return self._names.get(topic_id)

    @staticmethod
    def _is_as_asked(partition: Partition, ask: Ask) -> bool:
        return (
            partition.role is Role.FOLLOWER
            and partition.leader_epoch == ask.leader_epoch
            and partition.log.log_end_offset == ask.offset
        )

    async def _apply_one(self, each: _Followed, ask: Ask, row: wire.FetchResponse.PartitionData) -> None:
        partition = each.partition
        try:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._out_of_range(each, ask)
            elif row.error_code:
                self._refused(each, row.error_code)
                return
            elif row.diverging_epoch.end_offset >= 0:
                logger.info(
                    "%s parts from its leader's log: epoch %d ends at %d there",
                    partition,
                    row.diverging_epoch.epoch,
                    row.diverging_epoch.end_offset,
                )
                end, _ = partition.end_shared_with(
                    LeaderEpoch(row.diverging_epoch.epoch), Offset(row.diverging_epoch.end_offset)
                )
                await cut_log(partition, end, self._pace())
            else:
                # What a client decodes is no part of a file.
                await self._append(partition, ask, row)
        except KafkaError as error:
            text = "%s cannot take what its leader sent: %s; it is tried again"
            self._outages.failed(each.key, text, partition, error)
            self._leave_out(each)
            return
        self._outages.over(each.key, "%s takes what its leader sends again", partition)
        each.failures = 0
        each.retry_at = 0.0

    async def _append(self, partition: Partition, ask: Ask, row: wire.FetchResponse.PartitionData) -> None:
        """Append what the leader sent, very many batches in portions.  Between two portions other tasks run, and the
        partition may have another leader afterwards.  Raises KafkaError."""
        # What a client decodes is no part of a file.
        records = row.records if isinstance(row.records, bytes | memoryview) else b""
        pace = self._pace()
        end = ask.offset
        for portion in portions(memoryview(records)):
            if end != ask.offset and pace is not None:
                await pace
                if not self._is_as_asked(partition, ask._replace(offset=end)):
                    return
            partition.append_from_leader(portion, Offset(row.high_watermark), Offset(row.log_start_offset))
            partition.agrees_in_epoch = ask.leader_epoch
            end = partition.log.log_end_offset
            if self._traffic is not None and len(portion):
                self._traffic.copied(partition, len(portion))

    def _refused(self, each: _Followed, code: int) -> None:
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced.append(each.partition)
            self.remove(each.partition.topic_partition)
            return
        self._leave_out(each)

    def _leave_out(self, each: _Followed) -> None:
        each.failures += 1
        each.retry_at = self._loop.time() + self._backoff(each.failures)

    def _backoff(self, failures: int) -> float:
        """Shorter at first than Kafka's: a leader is often a moment late in learning that it leads."""
        most = self._settings().backoff_seconds
        return ExponentialBackoff(FIRST_BACKOFF_SECONDS, most).backoff(failures - 1)

    async def _out_of_range(self, each: _Followed, ask: Ask) -> None:
        """The leader's log ends before ours, after an unclean election, or begins behind our end."""
        partition = each.partition
        end = await self._offset(ask, LATEST)
        if not self._is_as_asked(partition, ask):
            return
        if end < ask.offset:
            logger.warning("%s is cut to the end of its leader's log, %d", partition, end)
            await cut_log(partition, end, self._pace())
            return
        start = await self._offset(ask, EARLIEST)
        if not self._is_as_asked(partition, ask):
            return
        if start > ask.offset:
            logger.info("%s begins anew where its leader's log does, at %d", partition, start)
            partition.restart_at(start)
        elif ask.last_epoch >= 0:
            # The leader has dropped its epochs since, as it has records of an older format: it would answer the same
            # fetch in the same way again.
            logger.info("%s is cut to its high watermark: its leader does not know epoch %d", partition, ask.last_epoch)
            if await cut_log(partition, partition.log.high_watermark, self._pace()):
                partition.log.leader_epoch_cache.clear()

    async def _offset(self, ask: Ask, timestamp: int) -> Offset:
        version = self._settings().protocol.list_offsets
        asked = offsets_request({ask.topic: [ask.partition]}, timestamp, replica_id=self._settings().node_id)
        asked.topics[0].partitions[0].current_leader_epoch = ask.leader_epoch
        answer = await self.client.send(asked, version)
        (topic,) = answer.topics
        (found,) = topic.partitions
        if found.error_code:
            raise KafkaError.of(ErrorCode(found.error_code), "ListOffsets to the leader")
        return Offset(found.offset if version >= FIRST_VERSION_WITH_ONE_OFFSET else found.old_style_offsets[0])

    # -- truncation before the first fetch of an epoch -----------------------------------------------------------------

    async def _truncate(self, followed: Iterable[_Followed]) -> None:
        by_epoch = []
        for each in followed:
            # Without an epoch, or with nothing to ask with, as before KIP-101: back to what was committed.
            if each.partition.log.latest_epoch < 0 or self._settings().protocol.offset_for_leader_epoch < 0:
                await self._cut(each, each.partition.log.high_watermark, agrees=True)
            else:
                by_epoch.append(each)
        if by_epoch:
            await self._truncate_by_epoch(by_epoch)

    async def _cut(self, each: _Followed, offset: Offset, *, agrees: bool) -> None:
        """`agrees`: whether the log then is the beginning of its leader's."""
        try:
            was_cut = await cut_log(each.partition, offset, self._pace())
        except KafkaError as error:
            self._outages.failed(each.key, "%s cannot be cut: %s", each.partition, error)
            self._leave_out(each)
            return
        if was_cut and agrees:
            each.has_to_truncate = False
            each.partition.agrees_in_epoch = each.partition.leader_epoch

    async def _truncate_by_epoch(self, followed: Iterable[_Followed]) -> None:
        settings = self._settings()
        request = wire.OffsetForLeaderEpochRequest
        asked = {each.partition.topic_partition: (each, each.partition.leader_epoch) for each in followed}
        topics: dict[str, list[wire.OffsetForLeaderEpochRequest.OffsetForLeaderPartition]] = {}
        for name, (each, leader_epoch) in asked.items():
            row = request.OffsetForLeaderPartition(
                partition=name.partition,
                current_leader_epoch=leader_epoch,
                leader_epoch=each.partition.log.latest_epoch,
            )
            topics.setdefault(name.topic, []).append(row)
        rows = [request.OffsetForLeaderTopic(topic=topic, partitions=parts) for topic, parts in topics.items()]
        answer = await self.client.send(
            request(replica_id=settings.node_id, topics=rows), settings.protocol.offset_for_leader_epoch
        )
        for topic in answer.topics:
            for row in topic.partitions:
                found = asked.get(TopicPartition(topic.topic, row.partition))
                if found is None:
                    continue
                each, leader_epoch = found
                partition = each.partition
                if partition.role is not Role.FOLLOWER or partition.leader_epoch != leader_epoch:
                    continue
                await self._truncate_by_answer(each, row)
        self._tell_fenced()

    async def _truncate_by_answer(self, each: _Followed, row: wire.OffsetForLeaderEpochResponse.EpochEndOffset) -> None:
        partition = each.partition
        if row.error_code:
            self._refused(each, row.error_code)
        elif row.end_offset < 0:
            # The leader knows no epoch that ours could be held against.
            await self._cut(each, partition.log.high_watermark, agrees=True)
        else:
            offset, agrees = partition.end_shared_with(LeaderEpoch(row.leader_epoch), Offset(row.end_offset))
            await self._cut(each, offset, agrees=agrees)
