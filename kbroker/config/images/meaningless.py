"""Variables of Kafka's container images that mean nothing to kbroker, and why.

The start names all of them in one line.  What asks for protection is never among them: `settings` obeys it, or refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

_JAVA = "there is no Java machine to set up"
_JMX = "metrics are at metrics.listener, for Prometheus (docs/metrics.md)"
_LOGS = "log lines are set by kbroker.log.level, and by logger with kafka-configs"
_CONFLUENT = "Confluent's reporters, balancer and licences are not part of kbroker"
_IMAGE = "they steer the start scripts of another image"
_LOCAL_CLIENTS = "no client's configuration is written for commands in the container"

WHY: Mapping[str, str] = MappingProxyType(
    {
        r"(KAFKA_)?HEAP_OPTS?|KAFKA_(JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|EXTRA_ARGS|DEBUG|DEBUG_FLAG)": _JAVA,
        r"EXTRA_ARGS|JAVA_TOOL_OPTIONS|JAVA_OPTS|CUB_CLASSPATH|KAFKA_CLASSPATH|KAFKA_JAVA_DEBUG_OPTS": _JAVA,
        r"KAFKA_(CFG_)?JMX_.*|JMX_PORT": _JMX,
        r"KAFKA_LOG4J.*|KAFKA_TOOLS_LOG4J.*|LOG4J_.*": _LOGS,
        r"(KAFKA_(CFG_)?)?CONFLUENT_.*": _CONFLUENT,
        r"BITNAMI_.*|KAFKA_ENABLE_KRAFT|KAFKA_SKIP_KRAFT_STORAGE_INIT|(KAFKA_)?CUB_.*|KAFKA_DATA_DIRS": _IMAGE,
        r"KAFKA_RESTART_(ATTEMPTS|DELAY)|KAFKA_LATEST_METHOD|KAFKA_DAEMON_(USER|GROUP)": _IMAGE,
        r"KAFKA_CLIENT_LISTENER(_NAME)?|KAFKA_(CFG_)?MAX_(PARTITION_FETCH_BYTES|REQUEST_SIZE)": _LOCAL_CLIENTS,
    }
)
"""Names, as regular expressions, and half a sentence."""

_REPORTERS_OF_CONFLUENT = "io.confluent."
REPORTERS = "metric.reporters"


def why_meaningless(name: str) -> str:
    """Why a variable means nothing here; empty where it may mean something."""
    return next((why for pattern, why in WHY.items() if re.fullmatch(pattern, name)), "")


def without_confluents(reporters: str) -> str:
    """Metrics reporters that are left when Confluent's, which most of its compose files name, are taken away."""
    named = (each.strip() for each in reporters.split(","))
    return ",".join(each for each in named if each and not each.startswith(_REPORTERS_OF_CONFLUENT))


def line_about(names: Iterable[str]) -> str:
    """One line that names the variables, each kind with its reason."""
    by_reason: dict[str, list[str]] = {}
    for name in sorted(names):
        by_reason.setdefault(why_meaningless(name), []).append(name)
    kinds = (f"{', '.join(found)} ({why})" for why, found in by_reason.items())
    return f"variables that mean nothing here: {'; '.join(kinds)}"
