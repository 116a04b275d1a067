"""A partition's part of a produce request, on its way from the request into the log and to its answer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker.errors import ErrorCode, InvalidTopicError, KafkaError, bare
from kbroker.gate.access import require_topic
from kbroker.handlers.records.delayed_produce import Unacknowledged
from kbroker.handlers.records.schema_validation import (
    NoRegistryError,
    UnaskedError,
    Unknown,
    UnnamedError,
    names_schemas,
    next_to_ask,
    unknown_in,
)
from kbroker.log_output import RateLimitedLog
from kbroker.metadata.topic_names import is_internal
from kbroker.metrics.sources import ASKED, AWAY, KNOWN, REFUSED
from kbroker.registry.errors import RegistryAwayError
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.storage.log.log_validator import (
    AnalyzedBatch,
    AppendOrigin,
    RecordValidationError,
    UnfitRequestError,
    UnreadableBatchError,
)
from kbroker.storage.log.message_set_validator import (
    FIRST_PRODUCE_VERSION_OF_BATCHES,
    LongRecordsError,
    validate_records,
)
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.types import NO_OFFSET, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition

    Topic = wire.ProduceRequest.TopicProduceData
    Row = wire.ProduceRequest.PartitionProduceData

complaints = RateLimitedLog(logging.getLogger("kbroker.produce"))

PartitionProduceResponse = wire.ProduceResponse.PartitionProduceResponse
BatchIndexAndErrorMessage = wire.ProduceResponse.BatchIndexAndErrorMessage

ALL_REPLICAS = -1
NO_RECORDS = NO_OFFSET, NO_OFFSET
ADMIN_CLIENT_ID = "__admin_client"
FIRST_VERSION_WITH_TOPIC_IDS = schema("ProduceRequest").first_version("topic_data.topic_id")
EMPTY = memoryview(b"")
# Kafka's answer has the log start offset with every error but these.
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# Those among them that Kafka meets when it appends: it counts the attempt, and no failure.
EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class PartitionAppend:
    """One row of a produce request.

    Its state is one of: open; `appended`, the first and last offset, set by the fast path; `refusal`, set by the
    verification of its transaction or by a thread; `analyzed`, set by a thread.  `guard`: the verification guard that
    the append of a transactional batch must bring.  `unacknowledged`: the commit that its answer has to wait for.
    `_names_known`: the registry has all schemas that its records have to name.

    Changed by the handler of its request alone, which asks for the answer once.
    """

    __slots__ = (
        "_ctx",
        "_names_known",
        "_unknown",
        "acks",
        "analyzed",
        "appended",
        "guard",
        "refusal",
        "row",
        "topic",
        "unacknowledged",
    )

    def __init__(
        self, ctx: RequestContext, acks: int, topic: Topic, row: Row, appended: tuple[Offset, Offset] | None
    ) -> None:
        self._ctx = ctx
        self.acks = acks
        self.topic = topic
        self.row = row
        self.appended = appended
        self.refusal: KafkaError | None = None
        self.analyzed: AnalyzedBatch | None = None
        self.guard: VerificationGuard | None = None
        self.unacknowledged: Unacknowledged | None = None
        self._names_known = False
        self._unknown: list[Unknown] = []

    @property
    def is_open(self) -> bool:
        """Whether nothing has come of it yet."""
        return self.appended is None and self.refusal is None

    def partition(self) -> Partition:
        """The partition that it names, where the client may write.  Raises KafkaError."""
        ctx, topic = self._ctx, self.topic
        manager = ctx.services.replica_manager
        if ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic.name = manager.topic_name(topic.topic_id)
        require_topic(ctx, Operation.WRITE, topic.name)
        if is_internal(topic.name) and ctx.client_id != ADMIN_CLIENT_ID:
            raise InvalidTopicError(f"Cannot append to internal topic {topic.name}")
        partition: Partition = manager.partition(topic.name, self.row.index)
        return partition

    def answer(self) -> PartitionProduceResponse | None:
        """Appends the batch unless the fast path has; returns its answer, or None if a thread has to validate the
        records, or the registry of schemas be asked, first."""
        try:
            partition = self.partition()
            if not are_valid(self.acks):
                # As in Kafka, an unknown partition is reported before invalid acks.
                return self.refuse(ErrorCode.INVALID_REQUIRED_ACKS)
            return self._appended_before(partition) if self.appended is not None else self._append(partition)
        except LongRecordsError:
            return None
        except KafkaError as error:
            return self._refused(error)

    async def answer_by_thread(self) -> PartitionProduceResponse:
        """As `answer`, after a thread has validated the records, and the registry has said which schemas there are."""
        answer = None
        while answer is None:  # A topic may come to ask for schemas while a thread validates.
            try:
                partition = self.partition()
                if self.analyzed is None:
                    await self._validate_by_thread(partition)
                if self.analyzed is not None and names_schemas(partition.log.config):
                    await self._ask_registry(partition, self.analyzed)
            except KafkaError as error:
                # Frames would hold the batch and, by `self`, the error: only the garbage collector would free such a
                # cycle.
                self.refusal = bare(error)
            answer = self.answer()
        self._discard()
        return answer

    def refuse(self, code: int) -> PartitionProduceResponse:
        """The answer with an error for which no log was asked."""
        self._ctx.note_error(code)
        return PartitionProduceResponse(index=self.row.index, error_code=code, base_offset=-1)

    # Validating

    async def _validate_by_thread(self, partition: Partition) -> None:
        is_as_stored = (
            self._ctx.api_version >= FIRST_PRODUCE_VERSION_OF_BATCHES and partition.log.config.message_magic == MAGIC_V2
        )
        if is_as_stored:
            await self._validate_in_turn(partition)
        else:
            async with self._ctx.services.conversions.turn:
                await self._validate_in_turn(partition)

    async def _validate_in_turn(self, partition: Partition) -> None:
        try:
            self.analyzed = await self._ctx.services.replica_manager.judging.on_thread(lambda: self._prepare(partition))
            if self.analyzed is None:
                self.appended = NO_RECORDS
        except KafkaError as error:
            self.refusal = bare(error)
        except OSError as error:
            self.refusal = partition.log.storage_error("writing a large batch", error)

    async def _ask_registry(self, partition: Partition, analyzed: AnalyzedBatch) -> None:
        """Goes on when the registry has all schemas that the records name.  RecordValidationError.

        One id after the other, up to the first that is not there: a batch may name as many as it has records.
        """
        ids, config, outcome = self._ctx.services.schema_ids, partition.log.config, KNOWN

        def look() -> None:
            self._unknown = unknown_in(analyzed, config, known)

        while True:
            known = set() if ids is None else set(ids.fresh())
            await self._ctx.services.replica_manager.judging.on_thread(look)
            asked = next_to_ask(self._unknown, ids, partition)
            if asked is None or ids is None:
                break
            outcome = ASKED
            try:
                await ids.ask(asked)
            except RegistryAwayError as error:
                raise UnaskedError(
                    f"schema {asked} of the append to {partition} cannot be looked up: {error}"
                ) from None
        self._ctx.services.schema_batches[outcome] += 1
        self._names_known = True

    def _prepare(self, partition: Partition) -> AnalyzedBatch | None:
        """What a thread does for a long batch: validates it, and writes a large one to a file of its own."""
        analyzed = self._validate(partition)
        if analyzed is not None and analyzed.info.magic == MAGIC_V2:
            analyzed.detached = partition.log.write_detached(analyzed.view)
        return analyzed

    def _validate(self, partition: Partition, *, on_loop: bool = False) -> AnalyzedBatch | None:
        """The records in the form to be stored; None of a message set without a whole message.

        `on_loop`: LongRecordsError for what belongs in a thread.
        """
        ctx, records = self._ctx, self.row.records
        if records is None:
            if ctx.api_version < FIRST_PRODUCE_VERSION_OF_BATCHES:
                raise UnfitRequestError("a message set that is null")
            records = EMPTY
        return validate_records(
            records,
            partition.log.config,
            ctx.services.clock.now_ms(),
            topic_partition=partition,
            produce_version=ctx.api_version,
            log_end_offset=partition.log.log_end_offset,
            on_loop=on_loop,
        )

    def _discard(self) -> None:
        """Forgets the thread's result, and removes its file unless the log has taken it, as it does not for a duplicate
        or a refused batch."""
        analyzed, self.analyzed = self.analyzed, None
        if analyzed is not None and analyzed.detached is not None and analyzed.detached.path:
            asyncio.get_running_loop().run_in_executor(None, analyzed.detached.discard)

    # Appending

    def _appended_before(self, partition: Partition) -> PartitionProduceResponse:
        assert self.appended is not None
        first, last = self.appended
        answer = PartitionProduceResponse(
            index=self.row.index, base_offset=first, log_start_offset=partition.log.log_start_offset
        )
        return self._acknowledge(partition, last, answer)

    def _append(self, partition: Partition) -> PartitionProduceResponse:
        """Raises KafkaError, LongRecordsError."""
        ctx = self._ctx
        if self.acks == ALL_REPLICAS:
            partition.check_in_sync()
        if self.refusal is not None:
            # Not raised again: the error would keep the frames that it passes, and these the batch.
            return self._refused(self.refusal)
        analyzed = self._validate(partition, on_loop=True) if self.analyzed is None else self.analyzed
        if analyzed is None:
            return PartitionProduceResponse(index=self.row.index, base_offset=-1)
        if names_schemas(partition.log.config) and not self._names_known:
            self._look_for_schemas(partition, analyzed)
        if analyzed.info.is_transactional and self.guard is None:
            # It was not verified: the request names no transactional id.
            raise KafkaError.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        result = ctx.services.replica_manager.append(
            partition, analyzed.view, origin=AppendOrigin.CLIENT, analyzed=analyzed, guard=self.guard or NO_GUARD
        )
        if analyzed.conversion_seconds:
            count = result.last_offset - result.first_offset + 1
            ctx.services.conversions.produced(count, analyzed.conversion_seconds)
        answer = PartitionProduceResponse(
            index=self.row.index,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time,
            log_start_offset=result.log_start_offset,
        )
        return self._acknowledge(partition, result.last_offset, answer)

    def _look_for_schemas(self, partition: Partition, analyzed: AnalyzedBatch) -> None:
        """LongRecordsError where the registry has to be asked, RecordValidationError where a schema is not there."""
        ids = self._ctx.services.schema_ids
        unknown = unknown_in(analyzed, partition.log.config, set() if ids is None else ids.fresh())
        if next_to_ask(unknown, ids, partition) is not None:
            self.analyzed = analyzed
            raise LongRecordsError
        self._ctx.services.schema_batches[KNOWN] += 1

    def _acknowledge(
        self, partition: Partition, last_offset: Offset, answer: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        if not partition.is_acknowledged(last_offset, by_all=self.acks == ALL_REPLICAS):
            self.unacknowledged = Unacknowledged(partition, last_offset, answer)
        return answer

    def _count_expected(self, error: KafkaError) -> None:
        named = TopicPartition(self.topic.name, self.row.index)
        log = self._ctx.services.log_manager.logs.get(named)
        if log is not None:
            log.count_refused_append()
            if error.code == ErrorCode.MESSAGE_TOO_LARGE:
                log.count_too_large(len(self.row.records or b""))

    def _refused(self, error: KafkaError) -> PartitionProduceResponse:
        answer = self.refuse(error.code)
        if error.code in EXPECTED and not isinstance(error, UnreadableBatchError):
            self._count_expected(error)
        if error.code not in WITHOUT_LOG_START and not isinstance(error, UnfitRequestError):
            partition = self._ctx.services.replica_manager.partition(self.topic.name, self.row.index)
            answer.log_start_offset = partition.log.log_start_offset
            # What Kafka counts as failed is what its answer has the log start offset with.
            partition.log.count_failed_append()
        if isinstance(error, (UnnamedError, UnaskedError)):
            self._ctx.services.schema_batches[AWAY if isinstance(error, UnaskedError) else REFUSED] += 1
        if isinstance(error, NoRegistryError):
            # That a registry does not answer is logged by `KnownIds`, once for all topics.
            complaints.warning(
                ("no registry", self.topic.name), "refused a batch of %s: %s", self._ctx.client_id, error
            )
        if isinstance(error, RecordValidationError):
            answer.error_message = error.message
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=bad.batch_index, batch_index_error_message=bad.message)
                for bad in error.record_errors
            ]
        return answer


def are_valid(acks: int) -> bool:
    """Whether a producer may ask for these acknowledgements."""
    return acks in (0, 1, ALL_REPLICAS)
