"""The face of testcontainers' `KafkaContainer`, for tests that were written for it: only the import changes.

    from kbroker.testing import KafkaContainer        # instead of testcontainers.kafka

No container engine is needed; the image's name is not looked at.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from kbroker.testing.broker import KafkaBroker

if TYPE_CHECKING:
    from typing import Self

HOST = "127.0.0.1"
KAFKA_PORT = 9093


class KafkaContainer:
    """Starts a broker in place of a container.  `with_env("KAFKA_NUM_PARTITIONS", "3")` is the setting
    `num.partitions`, as in Kafka's images."""

    def __init__(self, image: str = "", port: int = KAFKA_PORT, **_kwargs: object) -> None:
        self.image = image
        self.port = port
        self._settings: dict[str, str] = {}
        self._broker: KafkaBroker | None = None

    def with_env(self, key: str, value: str) -> Self:
        """Set what a Kafka image takes from this variable; names without `KAFKA_` in front are ignored."""
        if key.startswith("KAFKA_"):
            self._settings[key.removeprefix("KAFKA_").lower().replace("_", ".")] = value
        return self

    def with_kraft(self) -> Self:
        """Accepted: kbroker needs no ZooKeeper."""
        return self

    def start(self) -> Self:
        """Start the broker.  BrokerError when it does not start."""
        self._broker = KafkaBroker(settings=self._settings).start()
        return self

    def stop(self, *_args: object, **_kwargs: object) -> None:
        """End the broker and remove its data."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    @property
    def broker(self) -> KafkaBroker:
        """The broker behind it, which runs."""
        assert self._broker is not None, "the container is not started"
        return self._broker

    def get_bootstrap_server(self) -> str:
        """What clients take for `bootstrap.servers`."""
        return self.broker.bootstrap

    def get_container_host_ip(self) -> str:
        """The address of the broker."""
        return HOST

    def get_exposed_port(self, _port: int) -> int:
        """The port of the broker."""
        return self.broker.port

    def get_logs(self) -> tuple[bytes, bytes]:
        """What the broker printed, and nothing."""
        return self.broker.output().encode(), b""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
