"""Log directories that Kafka's older brokers wrote, in the message formats of their time.

`write` runs a release with ZooKeeper and leaves its directory behind: a topic for each format that the release writes,
each in all codecs with keys that come again, one with transactions where there are any, and a group's offsets.
`python -m tests.compat.old_directories` records them as archives in `vectors/`, from which `unpack` makes them again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests import archives
from tests.compat.brokers import BrokerProcess
from tests.compat.old_kafka import OldKafka, zookeeper
from tests.compat.tooling import OLD_KAFKA_VERSION, old_client_jars, old_kafka_jars
from tests.compat.waiting import wait_for

VECTORS = Path(__file__).parent / "vectors"
RELEASES = ("0.10.2.2", "2.8.2", "3.9.1")
# By release, the formats: a topic has the name of its own.
FORMATS = {
    "0.10.2.2": ("0.9.0", "0.10.2"),
    "2.8.2": ("0.9.0", "0.10.2", "2.8"),
    "3.9.1": ("0.9.0", "0.10.2", "2.8"),
}
CODECS = ("none", "gzip", "snappy", "lz4")
KEYS, ROUNDS = 20, 3
GROUP, COMMITTED = "old-group", 17
T0 = 1_700_000_000_000
LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
"""
SMALL = {"segment.bytes": "4096", "index.interval.bytes": "100", "retention.ms": "-1"}


class OlderKafka(OldKafka):
    """A broker of a release before 3.9, which is the one that `OldKafka` runs."""

    def __init__(self, folder: Path, release: str, host: str) -> None:
        settings = {"log.cleaner.enable": "false", "offsets.topic.num.partitions": "1", "broker.id": "1"}
        if release == "3.9.1":
            settings |= {"inter.broker.protocol.version": "2.8"}
        super().__init__(folder, settings, zookeeper=host)
        self.release = release
        self.host = host

    def command(self) -> list[str]:
        command = super().command()
        if self.release == OLD_KAFKA_VERSION:
            return command
        properties = self.folder / "server.properties"
        opened = ("java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.nio")
        options = [f"--add-opens={each}=ALL-UNNAMED" for each in opened]
        options += [f"--add-exports={each}=ALL-UNNAMED" for each in opened]
        logging = self.folder / "log4j.properties"
        logging.write_text(LOG4J)
        options.append(f"-Dlog4j.configuration=file:{logging}")
        return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options, "-cp",
                f"{old_client_jars(self.release, 'tools')}/*", "kafka.Kafka", str(properties)]  # fmt: skip

    def create(self, topic: str, message_format: str) -> None:
        """By the release's own tool, as it knows the formats."""
        where = ["--zookeeper", self.host] if self.release == "0.10.2.2" else ["--bootstrap-server", self.bootstrap]
        words = ["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1"]
        for name, value in {**SMALL, "message.format.version": message_format}.items():
            words += ["--config", f"{name}={value}"]
        is_newest = self.release == OLD_KAFKA_VERSION
        folder = old_kafka_jars() if is_newest else old_client_jars(self.release, "tools")
        tool = "org.apache.kafka.tools.TopicCommand" if is_newest else "kafka.admin.TopicCommand"
        command = ["java", "-cp", f"{folder}/*", tool, *where, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def topic_of(message_format: str) -> str:
    """The topic in this format."""
    return f"format-{message_format}"


def rows(codec_count: int = len(CODECS)) -> list[tuple[bytes, bytes, int]]:
    """Key, value and time of each record, in order."""
    return [
        (b"key-%d" % key, b"%s-%d-%d" % (codec.encode(), turn, key), T0 + 1000 * at + key)
        for at, (codec, turn) in enumerate((codec, turn) for codec in CODECS[:codec_count] for turn in range(ROUNDS))
        for key in range(KEYS)
    ]


def _fill(broker: BrokerProcess, topic: str) -> None:
    for codec in CODECS:
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5, "acks": "all"}
        producer = Producer(settings)
        failed: list[object] = []
        for key, value, time_ms in rows():
            if value.startswith(codec.encode() + b"-"):
                producer.produce(
                    topic,
                    value,
                    key,
                    timestamp=time_ms,
                    on_delivery=lambda error, _, failed=failed: failed.append(error) if error else None,
                )
                if key == b"key-%d" % (KEYS - 1):
                    assert producer.flush(30) == 0
        assert failed == []


def _commit(broker: BrokerProcess, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    finally:
        consumer.close()


def _transact(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "old"})
    producer.init_transactions(30)
    for turn, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"transaction-%d" % turn, b"in-transaction", timestamp=T0)
        assert producer.flush(30) == 0
        ends(30)
    # Its successor waits until both markers are written.
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "old"}).init_transactions(30)


def write(release: str, folder: Path, *, killed: bool) -> Path:
    """The directory that a broker of this release leaves, ended in order or `killed`."""
    with zookeeper(folder / "zookeeper") as host:
        broker = OlderKafka(folder / "broker", release, host)
        broker.start()
        try:
            for each in FORMATS[release]:
                broker.create(topic_of(each), each)
                _fill(broker, topic_of(each))
            wait_for(
                lambda: _did(lambda: _commit(broker, topic_of(FORMATS[release][0]))), "the group to commit", seconds=60
            )
            if "2.8" in FORMATS[release]:
                _transact(broker, topic_of("2.8"))
        finally:
            if killed:
                broker.kill()
            else:
                broker.stop()
        return broker.data


def _did(what: object) -> bool:
    from confluent_kafka import KafkaException

    try:
        what()  # type: ignore[operator]
    except KafkaException:
        return False
    return True


def archive(release: str, *, killed: bool) -> Path:
    """Where the directory is on record."""
    return VECTORS / f"directory-{release}{'-killed' if killed else ''}.tar.xz"


def unpack(release: str, folder: Path, *, killed: bool) -> Path:
    """The directory on record, made again."""
    archives.unpack(archive(release, killed=killed), folder)
    return folder / "data"


def main() -> None:
    """Record all."""
    for release in sys.argv[1:] or RELEASES:
        for killed in (False, True):
            with tempfile.TemporaryDirectory() as temporary:
                data = write(release, Path(temporary), killed=killed)
                # ZooKeeper's side of the transactions and the state of a topic of fifty partitions say nothing here.
                for path in data.glob("__transaction_state-*"):
                    shutil.rmtree(path)
                with tarfile.open(archive(release, killed=killed), "w:xz") as packed:
                    packed.add(data, "data")
            print(release, killed, archive(release, killed=killed).stat().st_size)


if __name__ == "__main__":
    main()
