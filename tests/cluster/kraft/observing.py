"""An observer as a broker has one, for tests: over a real network, or over the model of the controllers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.observer import QuorumObserver
from kbroker.cluster.kraft.quorum_steps import LogPlace, SnapshotId
from kbroker.cluster.kraft.settings import MetadataLogSettings, QuorumSettings
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, response_message, wire
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from tests.cluster.kraft.controllers import VOTERS, Controllers, endpoint_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.cluster.client import Channel, Transport
    from kbroker.protocol.messages import Message

DIRECTORY_ID = bytes(range(16))


class Observing:
    """An observer with its parts; `failures` has what it gave up for."""

    def __init__(
        self,
        folder: Path,
        addresses: Sequence[Endpoint],
        *,
        transport: Transport | None = None,
        files: FileSystem = SYSTEM_FILES,
        log: MetadataLogSettings | None = None,
        cluster_id: str | None = None,
        **settings: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        log = log or MetadataLogSettings()
        made = QuorumSettings(bootstrap=tuple(addresses), log=log, **settings)  # type: ignore[arg-type]
        self.failures: list[str] = []
        self.directory = MetadataDirectory(files, str(folder), log, SYSTEM_CLOCK)
        self.metadata = ClusterMetadata(cluster_id or "cluster")
        self.observer = QuorumObserver(
            loop,
            transport or TcpTransport(loop),
            made,
            self.directory,
            self.metadata,
            node_id=9,
            cluster_id=cluster_id,
            directory_id=DIRECTORY_ID,
            clock=SYSTEM_CLOCK,
            rng=random.Random(7),
            failed=self.failures.append,
        )

    async def __aenter__(self) -> Observing:
        self.observer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.observer.close()

    async def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for an application after which this holds."""
        came = await self.metadata.wait_until(lambda: bool(self.failures) or holds(), seconds)
        assert came and not self.failures, self.failures


class ModelTransport:
    """The model's controllers behind the interface of a network.

    An answer to a fetch without news waits `idle_seconds`, as a controller's would; `change` looks at each answer
    before it leaves.
    """

    def __init__(self, controllers: Controllers, fetch_versions: tuple[int, int] = (13, 18)) -> None:
        self.controllers = controllers
        self.fetch_versions = fetch_versions
        self.idle_seconds = 0.005
        self.max_bytes = 300
        self.asked: list[tuple[int, int, object]] = []
        self.change: Callable[[int, Message], Message] = lambda _node, answer: answer
        self.heard: Callable[[Message], None] = lambda _request: None

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """See `Transport`."""
        if not self.controllers.nodes[port].is_up:
            raise ConnectionRefusedError(f"{host}:{port}")
        return _ModelChannel(self, port, received, lost)


class _ModelChannel:
    """A connection to one controller of the model."""

    def __init__(
        self,
        transport: ModelTransport,
        node_id: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        self._transport = transport
        self._node_id = node_id
        self._received = received
        self._lost = lost
        self._is_open = True

    def send(self, parts: list[Buffer]) -> None:
        """See `Channel`."""
        frame = b"".join(bytes(part) for part in parts)[4:]
        header = decode_request_header(frame)
        request = request_message(header.api_key).program(header.api_version).decode(frame, header.size)
        self._transport.asked.append((self._node_id, header.api_version, request))
        self._transport.heard(request)
        answer, seconds = self._answer(header.api_key, header.api_version, request)
        asyncio.get_running_loop().call_later(
            seconds, self._deliver, header.api_key, header.api_version, header.correlation_id, answer
        )

    def _answer(self, api_key: int, version: int, request: Message) -> tuple[Message | None, float]:
        transport = self._transport
        controllers = transport.controllers
        match request:
            case wire.FetchRequest():
                row = request.topics[0].partitions[0]
                place = LogPlace(row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, row.high_watermark)
                answer = controllers.fetch(self._node_id, place, transport.max_bytes)
                is_idle = answer is not None and not answer.responses[0].partitions[0].records
                if answer is not None and version < 16:
                    answer.node_endpoints = []
                return answer, transport.idle_seconds if is_idle else 0.0
            case wire.FetchSnapshotRequest():
                asked = request.topics[0].partitions[0]
                snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
                epoch, most = asked.current_leader_epoch, transport.max_bytes
                return controllers.fetch_snapshot(self._node_id, epoch, snapshot, asked.position, most), 0.0
            case _:
                rows = [
                    (ApiKey.FETCH, *transport.fetch_versions),
                    (ApiKey.FETCH_SNAPSHOT, 0, 1),
                    (ApiKey.API_VERSIONS, 0, 4),
                ]
                versions = wire.ApiVersionsResponse.ApiVersion
                keys = [versions(api_key=key, min_version=low, max_version=high) for key, low, high in rows]
                return wire.ApiVersionsResponse(api_keys=keys), 0.0

    def _deliver(self, api_key: int, version: int, correlation_id: int, answer: Message | None) -> None:
        if not self._is_open:
            return
        if answer is None or not self._transport.controllers.nodes[self._node_id].is_up:
            self._is_open = False
            self._lost(ConnectionResetError("the model's controller is down"))
            return
        answer = self._transport.change(self._node_id, answer)
        flexible = api_key != ApiKey.API_VERSIONS
        frame = response_message(api_key).program(version).encode_response(answer, correlation_id, flexible)
        whole = frame if isinstance(frame, bytes) else b"".join(bytes(part) for part in frame)
        self._received(whole[4:])

    def close(self) -> None:
        """See `Channel`."""
        self._is_open = False


def over_model(folder: Path, controllers: Controllers, **arguments: object) -> tuple[Observing, ModelTransport]:
    """An observer of the model's controllers."""
    transport = ModelTransport(controllers)
    made = Observing(folder, [endpoint_of(each) for each in VOTERS], transport=transport, **arguments)  # type: ignore[arg-type]
    return made, transport
