"""docs/metrics.md, written from the families that a scrape has: `python -m kbroker.metrics.documentation`.

With the word `kafka` it is docs/metrics-kafka.md, from the table of the names that Kafka's exporters have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

INTRODUCTION = """# Metrics

Written by `make docs` from what the broker itself serves; do not edit.

`http://127.0.0.1:9644/metrics` (`metrics.listener`) answers in the text formats of Prometheus and OpenMetrics. A scrape
copies what it needs on the event loop, in slices of its time, and is rendered by a thread.

- Counters count from the start of the process; sizes are bytes, times seconds.
- Series with the labels `topic` and `partition` are there up to `kbroker.metrics.max.partitions` (2,000) partitions;
  with more, sums by topic remain, and beyond as many topics the sums over all. The same holds for committed offsets.
  Partitions that fail to be compacted are always named, up to that number.
- How dirty a log is was found by the cleaner's last look at it, at most `log.cleaner.backoff.ms` ago while one of its
  threads is free.

Worth an alert: `kbroker_cleaner_uncleanable_partitions`, `kbroker_cleaner_dead_threads` or `kbroker_log_damages`
above 0; `kbroker_cleaner_oldest_dirty_seconds` and
`kbroker_retention_oldest_deletable_seconds` that only grow; `kbroker_log_dir_refusing`; `kbroker_log_dirs_offline`;
`kbroker_loop_delay_seconds` with a tail; `kbroker_tls_certificate_left_seconds` below two weeks, and a
`kbroker_tls_store_changes_total` with the outcome `failed` that grows. What to do then: [operations.md](operations.md).
"""


KAFKA_INTRODUCTION = """# Metrics under Kafka's names

Written by `make docs` from the table that a scrape is made of; do not edit.

`http://127.0.0.1:9644/metrics/kafka` (`metrics.listener`) has the series under the names that dashboards and alerts for
Kafka use: those of JMX exporter as Strimzi and Confluent's jmx-monitoring-stacks configure it, those of kafka_exporter,
and `process_*`. With `kbroker.metrics.names=kafka` they are at `/metrics`; kbroker's own ([metrics.md](metrics.md)) are
always at `/metrics/kbroker`.

What Strimzi, Confluent's stack, kafka_exporter and awesome-prometheus-alerts ask for is in a table among the tests,
with the reason where a series concerns no node of kbroker: it is of Kubernetes, Java or Confluent Server.
112 of the 144 series of that table concern a broker or a controller, and all are shown.

Of 356 series that 67 public dashboards, rules and guides ask a broker for, 322 are shown, each under the naming that
fits (`tests/metrics/kafka_asked.tsv` has the names; of many a part was read). `python -m bench.asked_series FOLDER`
counts your own. What lacks most: names that no exporter's rules give (`under_replicated_partitions`), the times of
leader elections, and message conversions by request. `kafka_cluster_status` is of no broker: it is what
the monitoring of one operator finds by itself.

`tests/metrics/test_values_against_kafka.py` compares some 150 numbers with what the beans of Apache Kafka 4.3.1 say
after the same requests: counts of requests, messages, bytes, refusals and sizes, partitions, offsets, segments. They
are equal.

Nodes with the controller role show what Kafka's controllers do (`kafka.controller`, `raft-metrics`, `MetadataLoader`,
`SnapshotEmitter`); `tests/metrics/test_quorum_figures.py` compares names and numbers with those of Kafka 4.3.1. Each of
them shows the cluster by its own image, active or not: take the largest over the nodes, not the sum. Left out are
`AvgIdleRatio` of threads that kbroker has none of, `current-vote-directory-id`, which is no number, and the rates and
sizes of `raft-channel-metrics`, whose totals are there. 0 by nature are `EventQueueOperationsTimedOutCount` and
`TimedOutBrokerHeartbeatCount`: what waits for its turn is never given up.

A request's time in all is that until the socket has all of its answer, as in Kafka. Its parts: until it was begun, the
work on it, what it waited for, its answer's wait, and its answer's way into the socket. There are no queues between
threads here: a request is begun where it is read, and its answer leaves in the same turn of the loop, so most wait for
0. Those wait that are answered, or leave, together with others at the end of a turn in which several clients asked;
requests that are begun together, and answers that leave together, share a look at the clock.

- `/metrics/kafka?names=…` (also `/metrics/kafka/…`, and `kbroker.metrics.names=kafka-…` for `/metrics`) has what JMX's
  beans say under other names, by the rules of JMX exporter that their users have, and kafka_exporter's series:

  | `names` | Whose | Such as |
  |---|---|---|
NAMINGS_HERE
- One-minute rates are weighted as those of Kafka's meters, which a thread brings up to date every 5 s; here scrapes do,
  at most every 5 s: what came between two counts as evenly spread over the time between.
- Nothing is made up: a series without a source is not shown. What is 0 by nature, as the request queue of a broker that
  has none, says so below.
- Counters named `..._total` by Strimzi are there as `...persec` as well, as Confluent's stack names the same number.
- Percentiles are of about the last five minutes, in milliseconds, and as exact as the buckets of
  `kbroker_request_seconds`; rates are of the last half minute. Counters are read for them every 15 s.
- A partition is shown by its leader alone, so a sum over brokers counts it once; one without a leader is shown by the
  broker with the least id. Groups are shown by their coordinators, which ask other leaders where partitions end; the
  lag on one whose leader does not answer within 2 s is left out.
- Errors are those of whole answers and of Produce's partitions; those within other answers are not counted.
- Series by partition, topic and group end at `kbroker.metrics.max.partitions`, as under kbroker's own names.
- With several workers each series has the label `worker`, as at `/metrics` ([workers.md](workers.md)).
"""


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Section, name as scraped, type, labels and meaning of every family."""
    from kbroker.metrics.exposition import SECTIONS, process_families

    suffixes = {"counter": "_total", "info": "_info"}
    for title, families in SECTIONS:
        for family in families:
            name = family.name + suffixes.get(family.kind, "")
            yield title, name, family.kind, ", ".join(family.labels), family.text
    for process in process_families():
        yield "The process", process.name + suffixes.get(process.type, ""), process.type, "", process.documentation


def markdown() -> str:
    """The page."""
    parts = [INTRODUCTION]
    section = ""
    for title, name, kind, labels, text in rows():
        if title != section:
            section = title
            parts.append(f"\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
        parts.append(f"| `{name}` | {kind} | {labels} | {text} |\n")
    return "".join(parts)


def kafka_markdown() -> str:
    """The page of Kafka's names."""
    from kbroker.metrics.kafka_exposition import QUANTILE, series_of
    from kbroker.metrics.kafka_namings import EXAMPLE, NAMINGS
    from kbroker.metrics.kafka_table import SECTIONS

    rows = [
        f"  | `{name}` | {naming.title} | {'; '.join(f'`{one}`' for one in naming.examples(EXAMPLE))} |"
        for name, naming in NAMINGS.items()
    ]
    parts = [KAFKA_INTRODUCTION.replace("NAMINGS_HERE", "\n".join(rows))]
    for title, families in SECTIONS:
        parts.append(f"\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
        for row in families:
            names = "<br>".join(f"`{name}`" for name in series_of(row))
            labels = ", ".join((*row.labels, QUANTILE) if row.kind == "summary" else row.labels)
            kind = {"both": "counter, none"}.get(row.kind, row.kind)
            parts.append(f"| {names} | {kind} | {labels} | {row.text} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(kafka_markdown() if sys.argv[1:] == ["kafka"] else markdown())
