"""Settings of Java's clients that a reader and a writer share, and what they do here."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.replay.sources.option_table import Option, idle, refused, taken

BARE = "without the prefix `kafka.` it is no setting of a Kafka client"
_CONNECTION = "connections are made for a task and end with it"
_METRICS = "Spark's own metrics and log say what a query does"


def client_options() -> Iterator[Option]:
    """The rows of both tables that are about connections, retries and metrics."""
    yield taken("kafka.bootstrap.servers", "required", "`host:port[,host:port…]`")
    yield taken("kafka.client.id", "`kbroker-spark`", "the name that brokers see")
    yield taken("kafka.request.timeout.ms", "30000", "how long one answer may take")
    yield taken("kafka.default.api.timeout.ms", "60000", "how long a question is asked again")
    yield taken("kafka.socket.connection.setup.timeout.ms", "10000", "how long a connection may take to be made")
    yield taken("kafka.retry.backoff.ms", "100", "the first wait between tries")
    yield taken("kafka.retry.backoff.max.ms", "1000", "the longest wait between tries")
    yield taken("kafka.receive.buffer.bytes", "4194304", "the socket's buffer")
    yield from idle(
        _CONNECTION,
        "kafka.client.dns.lookup",
        "kafka.connections.max.idle.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.reconnect.backoff.max.ms",
        "kafka.send.buffer.bytes",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.metadata.max.age.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
    )
    yield from idle(
        _METRICS,
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.enable.metrics.push",
        "kafka.auto.include.jmx.reporter",
    )
    yield refused("kafka.interceptor.classes", "interceptors are Java classes")
    yield refused("kafka.security.providers", "providers are Java classes")
