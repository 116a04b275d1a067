"""Ask Apache Kafka the questions of the script and write its answers down: `python -m` this, with host:port of a broker
that is fresh and has the settings that the script names.

The first segment of each partition of its `__consumer_offsets`, once it has stopped, is
`../vectors/kafka-4.3.1-streams-groups-partition-N.log`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.coordinator.consumer.record_answers import Socket, topic_ids, wait_for_coordinator
from tests.coordinator.streams.script import StreamsScript

VECTORS = Path(__file__).parents[1] / "vectors"
ANSWERS = VECTORS / "kafka-4.3.1-streams-group-answers.json"
TOPIC_IDS = VECTORS / "kafka-4.3.1-streams-group-topics.json"


def main() -> None:
    """Write the vector."""
    host, port = sys.argv[1].split(":")
    caller = Socket(host, int(port))
    wait_for_coordinator(caller)
    ids = topic_ids(caller)
    script = StreamsScript(caller, ids, lambda: time.sleep(2))
    script.run()
    internal = caller.call("Metadata", 12, topics=None).topics
    ids |= {
        topic.name: bytes(topic.topic_id) for topic in internal if topic.name.endswith(("changelog", "repartition"))
    }
    TOPIC_IDS.write_text(json.dumps({name: topic_id.hex() for name, topic_id in ids.items()}) + "\n")
    ANSWERS.write_text(json.dumps(script.plain(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
