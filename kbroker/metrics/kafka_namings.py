"""The namings that a scrape may ask for, by the rules of those who use them."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.metrics.kafka_beans import BEANS, PERCENTILES, Said
from kbroker.metrics.kafka_naming import Naming, Rule

_BITNAMI = (
    Rule(r"kafka.controller<type=(KafkaController), name=(.+)><>(Value)", "kafka_controller_$1_$2_$3"),
    Rule(r"kafka.controller<type=(ControllerStats), name=(.+)><>(Count|OneMinuteRate)", "kafka_controller_$1_$2_$3"),
    Rule(
        r"kafka.server<type=(ReplicaFetcherManager), name=(.+), clientId=(.+)><>(Value)",
        "kafka_server_$1_$2_$4",
        {"client_id": "$3"},
    ),
    Rule(
        r"kafka.network<type=(RequestMetrics), name=(.+), request=([^,]+).*><>(Count|OneMinuteRate|Mean)",
        "kafka_network_$1_$2_$4",
        {"request": "$3"},
    ),
    Rule(r"kafka.network<type=(SocketServer|RequestChannel), name=(.+)><>(Count|Value)", "kafka_network_$1_$2_$3"),
    Rule(
        r"kafka.server<type=(.+), name=(.+), topic=(.+)><>(Count|OneMinuteRate)",
        "kafka_server_$1_$2_$4",
        {"topic": "$3"},
    ),
    Rule(
        r"kafka.server<type=(DelayedOperationPurgatory), name=(.+), delayedOperation=(.+)><>(Value)",
        "kafka_server_$1_$2_$3_$4",
    ),
    Rule(r"kafka.server<type=(.+), name=(.+)><>(Count|Value|OneMinuteRate)", "kafka_server_$1_total_$2_$3"),
    Rule(
        r"kafka.log<type=(.+), name=(.+), topic=(.+), partition=(.+)><>Value",
        "kafka_log_$1_$2",
        {"topic": "$3", "partition": "$4"},
    ),
)

_CP_HELM = (
    Rule(r"kafka.server<type=ReplicaManager, name=(.+)><>(Value|OneMinuteRate)", "cp_kafka_server_replicamanager_$1"),
    Rule(r"kafka.controller<type=KafkaController, name=(.+)><>Value", "cp_kafka_controller_kafkacontroller_$1"),
    Rule(
        r"kafka.server<type=BrokerTopicMetrics, name=([^,]+)><>OneMinuteRate", "cp_kafka_server_brokertopicmetrics_$1"
    ),
    Rule(
        r"kafka.network<type=RequestMetrics, name=RequestsPerSec, request=(.+)><>OneMinuteRate",
        "cp_kafka_network_requestmetrics_requestspersec_$1",
    ),
    Rule(
        r"kafka.network<type=SocketServer, name=NetworkProcessorAvgIdlePercent><>Value",
        "cp_kafka_network_socketserver_networkprocessoravgidlepercent",
    ),
    Rule(
        r"kafka.server<type=ReplicaFetcherManager, name=MaxLag, clientId=(.+)><>Value",
        "cp_kafka_server_replicafetchermanager_maxlag_$1",
    ),
    Rule(
        r"kafka.server<type=KafkaRequestHandlerPool, name=RequestHandlerAvgIdlePercent><>OneMinuteRate",
        "cp_kafka_kafkarequesthandlerpool_requesthandleravgidlepercent",
    ),
    Rule(r"kafka.controller<type=ControllerStats, name=(.+)><>OneMinuteRate", "cp_kafka_controller_controllerstats_$1"),
)


def _sysdig_times(request: str, name: str) -> tuple[Rule, Rule]:
    bean = f"kafka.network<type=RequestMetrics, name=TotalTimeMs, request={request}><>"
    return (
        Rule(f"{bean}95thPercentile", name, {"quantile": "0.95"}),
        Rule(f"{bean}Mean", name, {"quantile": "0.50"}),
    )


def _sysdig_quotas(kind: str, name: str) -> tuple[Rule, ...]:
    made = []
    for keys, labels in (
        ("user=(.+), client-id=(.+)", {"user": "$1", "client_id": "$2"}),
        ("user=([^,]+)", {"user": "$1"}),
        ("client-id=(.+)", {"client_id": "$1"}),
    ):
        who = "_".join(label.removesuffix("_id") for label in labels)
        for attribute, what in (("byte-rate", "byterate"), ("throttle-time", "throttle_time")):
            made.append(Rule(f"kafka.server<type={kind}, {keys}><>{attribute}", f"{name}_{who}_{what}", labels))
    return tuple(made)


_SYSDIG = (
    Rule(
        r"kafka.log<type=Log, name=Size, topic=(.+), partition=(.*)><>Value",
        "kafka_log_size",
        {"topic": "$1", "partition": "$2"},
    ),
    *(
        Rule(f"kafka.server<type=ReplicaManager, name={bean}><>Value", f"kafka_server_{name}")
        for bean, name in (
            ("UnderReplicatedPartitions", "under_replicated_partitions"),
            ("UnderMinIsrPartitionCount", "under_isr_partitions"),
            ("LeaderCount", "partition_leader_count"),
        )
    ),
    *(
        Rule(f"kafka.server<type=BrokerTopicMetrics, name={bean}><>OneMinuteRate", f"kafka_server_{name}")
        for bean, name in (
            ("BytesInPerSec", "bytes_in"),
            ("BytesOutPerSec", "bytes_out"),
            ("MessagesInPerSec", "messages_in"),
        )
    ),
    Rule(
        "kafka.controller<type=KafkaController, name=ActiveControllerCount><>Value",
        "kafka_controller_active_controller",
    ),
    Rule(
        "kafka.controller<type=KafkaController, name=OfflinePartitionsCount><>Value",
        "kafka_controller_offline_partitions",
    ),
    *_sysdig_times("FetchConsumer", "kafka_network_consumer_request_time_milliseconds"),
    *_sysdig_times("Produce", "kafka_network_producer_request_time_milliseconds"),
    *_sysdig_times("FetchFollower", "kafka_network_fetch_follower_time_milliseconds"),
    *_sysdig_quotas("Fetch", "kafka_server_consumer"),
    *_sysdig_quotas("Produce", "kafka_server_producer"),
)


def _keyed(pattern: str, name: str, before: int, **labels: str) -> Iterator[Rule]:
    """A rule for beans with each number of properties besides type and name, all of which are labels.  `pattern` ends
    with the attribute, behind KEYS, and has so many groups before that."""
    for count in range(3):
        keys = r", ([\w-]+)=([^,>]+)" * count
        others = {f"${before + 1 + 2 * number}": f"${before + 2 + 2 * number}" for number in range(count)}
        yield Rule(
            pattern.replace("KEYS", keys), name.replace("LAST", str(before + 2 * count + 1)), {**others, **labels}
        )


_NAMED = r"(kafka\.[\w.]+)<type=([^,>]+), name=([^,>]+)KEYS><>"
_PLAIN = (
    Rule(r"kafka.server<type=(KafkaRequestHandlerPool), name=(.+)><>OneMinuteRate", "kafka_server_$1_$2"),
    *_keyed(_NAMED + "Value", "$1_$2_$3", 3),
    *_keyed(_NAMED.replace("name=([^,>]+)", "name=([^,>]+PerSec)") + "Count", "$1_$2_$3_total", 3),
    *(
        rule
        for quantile, attribute in PERCENTILES.items()
        for rule in _keyed(_NAMED + attribute, "$1_$2_$3", 3, quantile=quantile)
    ),
    *_keyed(_NAMED + "(Count|Mean|OneMinuteRate)", "$1_$2_$3_$LAST", 3),
    *_keyed(r"(kafka\.[\w.]+)<type=([^,>]+)KEYS><>(.+)", "$1_$2_$LAST", 2),
)
_FLAT = (
    *_keyed(_NAMED + "(.+)", "$1_$2_$3_$LAST", 3),
    *_keyed(r"(kafka\.[\w.]+)<type=([^,>]+)KEYS><>(.+)", "$1_$2_$LAST", 2),
)

#: By what a scrape asks for: `/metrics/kafka?names=…`, and `/metrics/kafka/…`.
NAMINGS = {
    "raw": Naming("JMX exporter without rules", None, is_lower=False),
    "raw-lower": Naming("JMX exporter with lowercaseOutputName alone", None, is_lower=True),
    "raw-total": Naming("as raw, with counters that end in `_total`", None, is_lower=False, suffix="_total"),
    "flat": Naming("rules that put domain, type, name and attribute into the name", _FLAT, is_lower=True),
    "flat-mixed": Naming("as flat, in the case that JMX has", _FLAT, is_lower=False),
    "plain": Naming("rules without the attribute of gauges, with percentiles as quantiles", _PLAIN, is_lower=True),
    "plain-mixed": Naming("as plain, in the case that JMX has", _PLAIN, is_lower=False),
    "bitnami": Naming("Bitnami's chart", _BITNAMI, is_lower=True),
    "cp-helm": Naming("Confluent's cp-helm-charts", _CP_HELM, is_lower=True),
    "sysdig": Naming("Sysdig's PromCat", _SYSDIG, is_lower=True),
}

#: What a bean says that every naming has a name for.
_BYTES = next(bean for bean in BEANS if bean.name == "BytesInPerSec")
EXAMPLE = tuple(Said(_BYTES, (), attribute, 0.0) for attribute in ("Count", "OneMinuteRate"))
