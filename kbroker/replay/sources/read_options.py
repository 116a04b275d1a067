"""The options of reading from a broker (`read_table`), as values: the checks of Spark's own Kafka connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbroker.client.address import parse_bootstrap
from kbroker.client.cluster import ClientSettings
from kbroker.client.connection import DEFAULT_CLIENT_ID
from kbroker.client.fetcher import FetchSettings
from kbroker.client.list_offsets import TopicPartition
from kbroker.java_patterns import JavaPatternError, compile_java_pattern
from kbroker.replay.sources.offset_json import Offsets, names, parse_offsets, parse_partitions
from kbroker.replay.sources.option_values import OptionError, OptionValues
from kbroker.replay.sources.read_table import BATCH_ONLY, CHOICES, READING, STREAM_ONLY
from kbroker.replay.sources.security_options import parse_security
from kbroker.types import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class Limit:
    """Where to start or end.

    `place` is EARLIEST or LATEST for all partitions, unless there are offsets, or times, for each (`offsets` may hold
    EARLIEST and LATEST too), or one time for all.  `latest_if_none`: a start by a time later than all records is the
    end of the partition instead of an error.
    """

    option: str
    place: int = EARLIEST
    offsets: Offsets | None = None
    times: Offsets | None = None
    time: int | None = None
    latest_if_none: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that a read needs to know; picklable, so that executors get it as it is."""

    bootstrap: str
    client: ClientSettings
    fetch: FetchSettings
    assign: tuple[TopicPartition, ...]
    subscribe: tuple[str, ...]
    subscribe_pattern: str
    starting: Limit
    ending: Limit
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    offset_retries: int
    offset_retry_s: float


def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """OptionError, which says what to change, for anything that is wrong."""
    values = OptionValues(options)
    READING.check(values)
    bootstrap = parse_bootstrap_option(values)
    assign, subscribe, pattern = _parse_choice(values)
    starting, ending = _parse_limits(values, streaming)
    least = values.number("minOffsetsPerTrigger")
    most = values.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is higher than maxOffsetsPerTrigger {most}")
    return ReadOptions(
        bootstrap=bootstrap,
        client=parse_client(values),
        fetch=_parse_fetch(values),
        assign=assign,
        subscribe=subscribe,
        subscribe_pattern=pattern,
        starting=starting,
        ending=ending,
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=values.time_ms("maxTriggerDelay", 15 * 60_000),
        min_partitions=values.number("minPartitions"),
        max_records_per_partition=values.number("maxRecordsPerPartition"),
        offset_retries=values.count("fetchOffset.numRetries", 3, least=0),
        offset_retry_s=values.count("fetchOffset.retryIntervalMs", 10, least=0) / 1000,
    )


def of_whole_names(pattern: str) -> str:
    """The `subscribePattern` of topics whose whole name a pattern matches; alone it finds what a name contains."""
    return rf"\A(?:{pattern})\z"


def parse_bootstrap_option(values: OptionValues) -> str:
    """The brokers to begin with.  OptionError."""
    bootstrap = values.required("kafka.bootstrap.servers", "the brokers to begin with, as host:port[,host:port…]")
    try:
        parse_bootstrap(bootstrap)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return bootstrap


def _parse_choice(values: OptionValues) -> tuple[tuple[TopicPartition, ...], tuple[str, ...], str]:
    given = [name for name in CHOICES if values.has(name)]
    if len(given) != 1:
        what = "one of the options" if not given else "only one of the options"
        raise OptionError(f"{what} {', '.join(CHOICES)} must be given, to say what to read")
    value = values.required(given[0], "it is empty")
    if given[0] == "assign":
        try:
            return tuple(parse_partitions("assign", value)), (), ""
        except ValueError as error:
            raise OptionError(str(error)) from None
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))
        if not topics:
            raise OptionError(f"option subscribe names no topic: {value!r}")
        return (), topics, ""
    try:
        compile_java_pattern(value)
    except JavaPatternError as error:
        raise OptionError(f"option subscribePattern is no regular expression of Java's: {error}") from None
    return (), (), value


def _parse_limits(values: OptionValues, streaming: bool) -> tuple[Limit, Limit]:
    strategy = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    starting = _parse_limit(values, "starting", LATEST if streaming else EARLIEST, strategy == "latest")
    if streaming:
        values.refuse(dict.fromkeys(BATCH_ONLY, "a streaming query has no end"))
        return starting, Limit("endingOffsets", LATEST)
    for name in filter(values.has, STREAM_ONLY):
        READING.name_idle(name, "it is for streaming queries")
    ending = _parse_limit(values, "ending", LATEST, False)
    if starting.place == LATEST or LATEST in (starting.offsets or {}).values():
        raise OptionError("startingOffsets: a batch query cannot start at latest (-1), it would read nothing")
    if ending.place == EARLIEST or EARLIEST in (ending.offsets or {}).values():
        raise OptionError("endingOffsets: a batch query cannot end at earliest (-2), it would read nothing")
    _check_order(starting, ending)
    return starting, ending


def _check_order(starting: Limit, ending: Limit) -> None:
    """OptionError where a partition's start lies behind its end, as far as options alone tell."""
    for begin, end in ((starting.offsets, ending.offsets), (starting.times, ending.times)):
        behind = [at for at in begin or {} if 0 <= (end or {}).get(at, LATEST) < (begin or {})[at]]
        if behind:
            raise OptionError(f"{starting.option} lies behind {ending.option} for {names(behind)}")


def _parse_limit(values: OptionValues, side: str, default: int, latest_if_none: bool) -> Limit:
    """In order of precedence: one time for all, times for each partition, offsets."""
    neutral = EARLIEST if side == "starting" else LATEST
    option = f"{side}Timestamp"
    if values.has(option):
        return Limit(option, neutral, time=values.number(option, least=0), latest_if_none=latest_if_none)
    option = f"{side}OffsetsByTimestamp"
    text = values.text(option)
    try:
        if text is not None:
            return Limit(option, neutral, times=parse_offsets(option, text), latest_if_none=latest_if_none)
        option = f"{side}Offsets"
        text = (values.text(option) or "").strip()
        if not text:
            return Limit(option, default)
        if text.lower() in ("earliest", "latest"):
            return Limit(option, EARLIEST if text.lower() == "earliest" else LATEST)
        offsets = parse_offsets(option, text)
    except ValueError as error:
        raise OptionError(f"{error}; or earliest, or latest" if option.endswith("Offsets") else str(error)) from None
    wrong = {at: offset for at, offset in offsets.items() if offset < EARLIEST}
    if wrong:
        raise OptionError(f"option {option}: an offset is 0 or more, -1 (latest) or -2 (earliest), not {wrong}")
    return Limit(option, neutral, offsets=offsets)


def parse_client(values: OptionValues) -> ClientSettings:
    """How patient the client is, how it calls itself, and its security."""
    return ClientSettings(
        client_id=values.text("kafka.client.id") or DEFAULT_CLIENT_ID,
        connect_timeout_s=values.count("kafka.socket.connection.setup.timeout.ms", 10_000) / 1000,
        request_timeout_s=values.count("kafka.request.timeout.ms", 30_000) / 1000,
        patience_s=values.count("kafka.default.api.timeout.ms", 60_000) / 1000,
        retry_backoff_s=values.count("kafka.retry.backoff.ms", 100) / 1000,
        retry_backoff_max_s=values.count("kafka.retry.backoff.max.ms", 1000) / 1000,
        receive_buffer_bytes=values.count("kafka.receive.buffer.bytes", ClientSettings().receive_buffer_bytes),
        security=parse_security(values),
    )


def _parse_fetch(values: OptionValues) -> FetchSettings:
    default = FetchSettings()
    isolation = values.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted")
    per_partition = values.count("kafka.max.partition.fetch.bytes", default.max_bytes)
    return FetchSettings(
        # A fetch is for one partition, so the smaller of the two decides.
        max_bytes=min(per_partition, values.count("kafka.fetch.max.bytes", per_partition)),
        max_wait_ms=values.count("kafka.fetch.max.wait.ms", default.max_wait_ms, least=0),
        min_bytes=values.count("kafka.fetch.min.bytes", default.min_bytes),
        isolation=READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED,
        poll_timeout_s=values.count("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
    )
