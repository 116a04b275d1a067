"""A job of Apache Flink: its source, state, and the sink that is exactly once, with checkpoints."""

from __future__ import annotations

from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import HERE, java_program
from tests.integrations.topics import Reader, Writer, numbered, through_restarts

JOB = HERE / "java" / "FlinkOrders.java"
SETTINGS = {
    "execution.checkpointing.interval": "500 ms",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.num-retained": "3",
}
RECOVERY = "execution.state-recovery.path"


def command(broker: BrokerProcess, settings: dict[str, str], temporary: Path) -> list[str]:
    words = [f"{key}={value}" for key, value in settings.items()]
    return java_program("flink", "FlinkOrders", broker.bootstrap, *words, source=JOB, temporary=temporary)


def last_checkpoint(folder: Path) -> Path:
    """The newest checkpoint that is complete: its metadata are written last."""
    found = folder.glob("*/chk-*/_metadata")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent


def test_orders_are_counted_once_though_broker_and_job_die(
    broker: BrokerProcess, program: StartProgram, tmp_path: Path
) -> None:
    """A restart of the broker, or of the job from its checkpoint, would lose orders, count them twice, or leave a
    transaction open before which read_committed consumers wait."""
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
    checkpoints = tmp_path / "checkpoints"
    settings = {**SETTINGS, "execution.checkpointing.dir": checkpoints.as_uri()}
    job = program("flink", command(broker, settings, tmp_path))
    writer, orders = Writer(broker.bootstrap, "orders"), numbered("order", 0, 3000)
    bills = [f"{count} {order}" for count, order in enumerate(orders, 1)]

    def again() -> None:
        job.kill()
        job.command = command(broker, {**settings, RECOVERY: last_checkpoint(checkpoints).as_uri()}, tmp_path)
        job.start()

    with Reader(broker.bootstrap, "bills") as reader:
        through_restarts(broker, writer, orders, reader.wait_for, again)
        reader.assert_exactly(bills)
    job.stop()
