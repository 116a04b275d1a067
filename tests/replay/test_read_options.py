"""Options of the data sources, and the arithmetic of offset ranges: nothing here needs Spark.

Also of `kbroker.replay.sources.admission`, `kbroker.replay.sources.datasources`,
`kbroker.replay.sources.documentation`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.replay.sources import log_options, read_options
from kbroker.replay.sources.documentation import DOCUMENT, TABLES, with_tables
from kbroker.replay.sources.offset_json import from_checkpoint, parse_offsets, to_checkpoint
from kbroker.replay.sources.offset_ranges import Range, rate_limit, split
from kbroker.replay.sources.option_table import Effect
from kbroker.replay.sources.option_values import OptionError
from kbroker.replay.sources.read_options import ReadOptions, parse
from kbroker.replay.sources.read_table import READING
from kbroker.types import EARLIEST, LATEST, READ_COMMITTED

BASE = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}


def batch(**more: str) -> ReadOptions:
    return parse({**BASE, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=False)


def stream(**more: str) -> ReadOptions:
    return parse({**BASE, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=True)


def test_defaults_are_those_of_sparks_connector() -> None:
    """A job moved from the jar to this source would read something else."""
    assert batch().starting.place == EARLIEST
    assert batch().ending.place == LATEST
    assert stream().starting.place == LATEST
    assert batch().fail_on_data_loss
    assert batch().min_partitions is None
    assert (batch().offset_retries, batch().offset_retry_s, batch().fetch.poll_timeout_s) == (3, 0.01, 120.0)
    assert stream().max_trigger_delay_ms == 15 * 60_000


def test_names_of_options_have_no_case() -> None:
    """Spark hands options over in lower case."""
    options = parse(
        {"KAFKA.BOOTSTRAP.SERVERS": "a:1,b:2", "SubscribePattern": "t.*", "kafka.isolation.LEVEL": "read_committed"},
        streaming=False,
    )
    assert (options.bootstrap, options.subscribe_pattern) == ("a:1,b:2", "t.*")
    assert options.fetch.isolation == READ_COMMITTED


def test_a_time_for_all_goes_before_times_which_go_before_offsets() -> None:
    """The job would start elsewhere than under Spark's connector, where this is the order."""
    each = '{"t":{"0":7}}'
    limit = batch(startingTimestamp="5", startingOffsetsByTimestamp=each, startingOffsets=each).starting
    assert (limit.time, limit.times, limit.offsets) == (5, None, None)
    limit = batch(startingOffsetsByTimestamp=each, startingOffsets=each).starting
    assert (limit.time, limit.times, limit.offsets) == (None, {("t", 0): 7}, None)
    assert batch(startingOffsets=each).starting.offsets == {("t", 0): 7}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers must be given"),
        ({**BASE, "kafka.bootstrap.servers": "nowhere"}, "'nowhere' in kafka.bootstrap.servers is not host:port"),
        ({**BASE, "kafka.bootstrap.servers": "a:99999"}, "is not host:port"),
        ({"kafka.bootstrap.servers": "a:1"}, "one of the options assign, subscribe, subscribePattern"),
        ({**BASE, "assign": '{"t":[0]}'}, "only one of the options assign, subscribe, subscribePattern"),
        ({**BASE, "subscribe": " , "}, "names no topic"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t":0}'}, "option assign: expected e.g."),
        ({"kafka.bootstrap.servers": "a:1", "assign": "{}"}, "names no partition"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "is no regular expression"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "(?x)a b"}, "COMMENTS"),
        ({**BASE, "startingOffsets": "latest"}, "cannot start at latest"),
        ({**BASE, "startingOffsets": '{"t":{"0":-1}}'}, "cannot start at latest"),
        ({**BASE, "endingOffsets": "earliest"}, "cannot end at earliest"),
        ({**BASE, "endingOffsets": '{"t":{"0":-2}}'}, "cannot end at earliest"),
        ({**BASE, "startingOffsets": '{"t":{"0":-3}}'}, "0 or more, -1 .latest. or -2 .earliest."),
        ({**BASE, "startingOffsets": "begin"}, 'expected e.g. {"topicA".*or earliest, or latest'),
        ({**BASE, "startingOffsets": '{"t":{"0":"5"}}'}, "expected e.g."),
        ({**BASE, "startingOffsets": '{"t":[5]}'}, "expected e.g."),
        ({**BASE, "startingTimestamp": "-5"}, "startingTimestamp is at least 0"),
        ({**BASE, "startingTimestamp": "now"}, "startingTimestamp is a whole number, not 'now'"),
        ({**BASE, "minPartitions": "0"}, "minPartitions is at least 1"),
        ({**BASE, "startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "lies behind endingOffsets"),
        ({**BASE, "failOnDataLoss": "no"}, "failOnDataLoss is true or false, not 'no'"),
        (
            {**BASE, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "sasl.jaas.config is not set",
        ),
        ({**BASE, "kafka.security.protocol": "TLS"}, "security.protocol TLS is none of"),
        ({**BASE, "kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({**BASE, "kafka.isolation.level": "serial"}, "one of read_uncommitted, read_committed"),
        ({**BASE, "startingOfsets": "earliest"}, "no option startingofsets; did you mean startingOffsets"),
        ({**BASE, "kafka.fetch.bytes": "1"}, "no option kafka.fetch.bytes"),
    ],
)
def test_a_wrong_option_says_what_to_change(options: dict[str, str], says: str) -> None:
    """A job would run with a default in place of what was meant, and nobody would notice."""
    with pytest.raises(OptionError, match=says):
        parse(options, streaming=False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "a streaming query has no end"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "higher than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "a time such as 500ms"),
    ],
)
def test_a_wrong_option_of_a_stream_says_what_to_change(options: dict[str, str], says: str) -> None:
    """As above, for streaming queries."""
    with pytest.raises(OptionError, match=says):
        parse({**BASE, **options}, streaming=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option path must be given"),
        ({"path": "/x", "topics": "a", "topicsPattern": "b"}, "only one of"),
        ({"path": "/x", "startingOffsets": "latest"}, "or earliest"),
        ({"path": "/x", "startingOffsets": '{"t":{"0":5}}', "startingTimestamp": "5"}, "only one of"),
        ({"path": "/x", "kafka.isolation.level": "read_committed"}, "all records are given"),
        ({"path": "/x", "topic": "t"}, "did you mean topics"),
    ],
)
def test_a_wrong_option_of_log_directories_says_what_to_change(options: dict[str, str], says: str) -> None:
    """As above, for reading a disk."""
    with pytest.raises(OptionError, match=says):
        log_options.parse(options)


@pytest.mark.parametrize("name", ["kafka.group.id", "groupIdPrefix", "group.id", "kafka.max.poll.records",
    "kafka.consumer.cache.capacity", "maxRatePerPartition"])  # fmt: skip
def test_what_means_nothing_here_is_taken_and_named(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that runs on Spark's connector would stop here for an option that changes nothing."""
    monkeypatch.setattr(READING, "_named", set())
    for _ in range(2):
        assert parse({**BASE, name: "5"}, streaming=True).subscribe == ("t",)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"option {name} has no effect"]


@pytest.mark.parametrize(
    "name",
    ["stopGracefullyOnShutdown", "minRatePerPartition", "spark.default.parallelism", "header", "maxFilesPerTrigger",
     "inferSchema", "checkpointLocation", "kafka.own.setting", "numPartitions"],
)  # fmt: skip
def test_an_option_of_spark_or_of_another_source_is_named_and_changes_nothing(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that Spark's connector runs would end for an option that the connector ignores."""
    monkeypatch.setattr(READING, "_named", set())
    assert parse({**BASE, name: "true"}, streaming=True) == parse(BASE, streaming=True)
    assert [record.getMessage().split(":")[0].lower() for record in caplog.records] == [
        f"option {name.lower()} has no effect"
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("startingOffset", "startingOffsets"), ("subscribePatern", "subscribePattern"),
     ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"), ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
     ("failOnDataLos", "failOnDataLoss"), ("kafka.isolation.levels", "kafka.isolation.level")],
)  # fmt: skip
def test_a_misspelt_option_ends_the_job(name: str, meant: str) -> None:
    """A job would read from another place than it says, without a word."""
    with pytest.raises(OptionError, match=f"did you mean {meant}"):
        parse({**BASE, name: "x"}, streaming=True)


def test_limits_of_streams_are_named_and_change_no_batch(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that sets them for its batches, too, as Spark's connector lets it, would stop here."""
    monkeypatch.setattr(READING, "_named", set())
    assert batch(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2", maxTriggerDelay="1s").subscribe == ("t",)
    assert len([record for record in caplog.records if "it is for streaming queries" in record.getMessage()]) == 3


def test_the_options_of_the_documentation_are_those_of_the_code() -> None:
    """A reader would give options that mean something else, or miss one."""
    text = (Path(__file__).resolve().parents[2] / DOCUMENT).read_text()
    assert with_tables(text) == text, "run `make docs`"
    assert all(f"<!-- options: {name} -->" in text for name in TABLES)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_documented_default_is_what_an_option_has_when_it_is_not_given(streaming: bool) -> None:
    """The table would name values that nobody has."""
    checked = 0
    for option in READING.options:
        value = option.default.strip("`")
        if option.effect is Effect.TAKEN and re.fullmatch(r"[\w-]+", value) and value != "required":
            if streaming and option.name == "endingOffsets":
                continue
            assert parse({**BASE, option.name: value}, streaming=streaming) == parse(BASE, streaming=streaming), option
            checked += 1
    assert checked > 15


offsets = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b.c", "d_e-f"]), st.integers(0, 20)), st.integers(0, 1 << 62), max_size=8
)


@given(offsets, offsets)
def test_a_checkpoint_gives_back_what_was_put_in(now: dict[Any, int], start: dict[Any, int]) -> None:
    """A query would go on elsewhere after a restart: records lost, or read twice."""
    assert from_checkpoint(to_checkpoint(now, start)) == (now, start)


def test_offsets_are_read_as_spark_writes_them() -> None:
    """Offsets noted from a job on Spark's connector could not be used here."""
    assert parse_offsets("x", '{"a":{"0":23,"1":-1},"b":{"10":-2}}') == {("a", 0): 23, ("a", 1): -1, ("b", 10): -2}


ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=8).map(
    lambda found: [Range("t", number, start, start + size) for number, (start, size) in enumerate(found)]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 2000))
def test_split_ranges_cover_every_offset_once(found: list[Range], least: int | None, most: int | None) -> None:
    """Two tasks would read the same records, or none would."""
    pieces = split(found, least, most)
    for whole in found:
        own = sorted(piece for piece in pieces if piece.partition == whole.partition)
        assert [piece.start for piece in own] == ([whole.start, *(piece.stop for piece in own[:-1])] if own else [])
        assert (own[-1].stop if own else whole.start) == whole.stop
    assert all(piece.size > 0 for piece in pieces)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


def test_large_partitions_are_split_and_small_ones_are_not() -> None:
    """One task would read nearly everything while the others have nothing to do."""
    pieces = split([Range("t", 0, 0, 900), Range("t", 1, 0, 10)], 4, None)
    assert [piece.partition for piece in pieces] == [0, 0, 0, 1]
    assert [piece.size for piece in pieces] == [300, 300, 300, 10]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1, max_size=8),
    st.integers(1, 10_000),
)
def test_a_trigger_takes_its_share_of_each_partition(found: list[tuple[int, int]], most: int) -> None:
    """A busy partition would starve the others, or a batch would be larger than the memory it was planned for."""
    start = {("t", number): first for number, (first, _) in enumerate(found)}
    end = {("t", number): first + size for number, (first, size) in enumerate(found)}
    limited = rate_limit(start, end, most)
    assert all(start[at] <= limited[at] <= end[at] for at in end)
    assert all(limited[at] > start[at] for at in end if end[at] > start[at])
    taken = sum(limited[at] - start[at] for at in end)
    assert taken <= max(most, len(found)) + len(found)
    if sum(size for _, size in found) <= most:
        assert limited == end


def test_topics_of_users_are_read_whatever_their_names_begin_with() -> None:
    """Records of a topic such as `__mine` would be missing without a word, or a broker's own state be read."""
    everything = log_options.parse({"path": "/data"})
    assert everything.wants("orders")
    assert everything.wants("__mine")
    assert not everything.wants("__consumer_offsets")
    assert not everything.wants("__cluster_metadata")
    named = log_options.parse({"path": "/data", "topics": "__consumer_offsets"})
    assert named.wants("__consumer_offsets")


def test_patterns_of_topics_are_javas() -> None:
    """A job that moves from Spark's connector would read no rows, or those of other topics, without a word."""
    wanted = log_options.parse({"path": "/data", "topicsPattern": "(?i)ORDERS-[a-z&&[^b]]++"}).wants
    assert [topic for topic in ("orders-a", "Orders-B", "orders-c1") if wanted(topic)] == ["orders-a"]
    assert read_options.of_whole_names("a|b.*") == r"\A(?:a|b.*)\z"
