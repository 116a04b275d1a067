"""DescribeClientQuotas and AlterClientQuotas against what Apache Kafka 4.3.1 answered to the same requests in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.handlers.admin_broker import AdminBroker

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-quotas.json"
Answer = dict[str, Any]


def in_order(answer: Answer) -> Answer:
    """Kafka's order of entries is that of a hash table."""
    if answer["entries"]:
        for entry in answer["entries"]:
            entry.get("values", []).sort(key=lambda value: value["key"])
            entry["entity"].sort(key=lambda part: part["entity_type"])
        answer["entries"].sort(key=lambda entry: json.dumps(entry["entity"]))
    return answer


def test_answers_are_kafkas(tmp_path: Path) -> None:
    """An admin tool written for Kafka would see other codes, texts or quotas than it knows."""
    broker = AdminBroker.start(tmp_path)
    differences = []
    try:
        for step in json.loads(VECTORS.read_text()):
            actual = in_order(broker.ask(step["api"], step["version"], step["request"]))
            expected = in_order(step["response"])
            if actual != expected:
                differences.append(f"{step['name']}\n  Kafka:   {expected}\n  kbroker: {actual}")
        stored = broker.store.client_quotas()
        assert stored == broker.services.metadata_cache.image.quotas
    finally:
        broker.stop()
    assert not differences, "\n".join(differences)
