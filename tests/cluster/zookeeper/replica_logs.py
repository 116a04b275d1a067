"""Whether the replicas of a partition have the same bytes, by themselves and by Kafka's own DumpLogSegments."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.zookeeper.processes import Cluster
from tests.compat.tooling import old_java_command


def segments(cluster: Cluster, topic: str, partition: int) -> dict[int, list[Path]]:
    """The segments of each replica, by broker."""
    found: dict[int, list[Path]] = {}
    for number, node in cluster.nodes.items():
        files = sorted(node.log.glob(f"**/{topic}-{partition}/*.log"))
        if files:
            found[number] = files
    return found


def bytes_of(files: list[Path]) -> bytes:
    return b"".join(path.read_bytes() for path in files)


def dumped(files: list[Path]) -> list[str]:
    """What Kafka's tool says of segments: each batch and record, with checksums, and without the files' names."""
    named = ",".join(map(str, files))
    done = subprocess.run(
        old_java_command("kafka.tools.DumpLogSegments", "--files", named, "--print-data-log", "--deep-iteration"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Dumping ")]
    assert not [line for line in lines if "isvalid: false" in line]
    return lines


def check_same(cluster: Cluster, topic: str, partitions: int, replicas: int) -> dict[str, int]:
    """All replicas are equal; how many bytes, batches and records they have."""
    sums = {"bytes": 0, "batches": 0, "records": 0}
    for partition in range(partitions):
        found = segments(cluster, topic, partition)
        assert len(found) == replicas
        contents = {number: bytes_of(files) for number, files in found.items()}
        assert len(set(contents.values())) == 1, {number: len(each) for number, each in contents.items()}
        texts = [dumped(files) for files in found.values()]
        assert all(text == texts[0] for text in texts)
        sums["bytes"] += len(next(iter(contents.values())))
        sums["batches"] += sum(line.startswith("baseOffset:") for line in texts[0])
        sums["records"] += sum(line.startswith("| offset:") for line in texts[0])
    return sums
