"""Connections of strangers to one controller after the other, each answer judged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kbroker._fast.wire.codec import DecodeError
from kbroker.cluster.raft.election import LAST_EPOCH
from kbroker.error_codes import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message, wire
from tests.fuzz.strangers.frames import Frame, Place, Stranger
from tests.fuzz.strangers.node import CLUSTER, DIRECTORY_ID, KINDS, MAY_CHANGE, METADATA_LEVEL, NODE_ID, Target, until

FRAMES_OF_A_LIFE = 8_000
CONNECTIONS = 24
MOST_FRAMES = 12
PATIENCE_SECONDS = 10.0
FEW_EPOCHS_LEFT = 1 << 30
"""Where a stranger has used up the epochs of a node that believes it, which Kafka's does as well, the life is over."""
ADMINISTERED = ("administered", "open")
GROWTH_BYTES = 96 << 20
"""So much more memory than after the first life of each kind would be a leak, or a reservation."""
CODES = frozenset(int(each) for each in ErrorCode)
REFUSED_EVERYWHERE = frozenset({ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS})
"""What Kafka's controllers answer with UNKNOWN_SERVER_ERROR."""
FEATURES = {"metadata.version": (7, METADATA_LEVEL + 3), "kraft.version": (0, 1), "group.version": (0, 1)}


class Run:
    """`count` frames, by all kinds of controllers in turn.  `report` gets a line for each life of one."""

    def __init__(
        self, seed: int, count: int, report: Callable[[str], object] = lambda _: None, frames: int = FRAMES_OF_A_LIFE
    ) -> None:
        self.rng = random.Random(seed)
        self.count = count
        self.answered = 0
        self.hung_up = 0
        self.left = 0
        self.codes: Counter[str] = Counter()
        self._report = report
        self._frames = frames
        self._most_bytes: dict[str, int] = {}

    @property
    def judged(self) -> int:
        """How many frames have come to an answer or to the end of their connection."""
        return self.answered + self.hung_up + self.left

    async def run(self) -> None:
        """AssertionError with what was found."""
        lives = 0
        while self.judged < self.count:
            kind = list(KINDS)[lives % len(KINDS)]
            seed = self.rng.getrandbits(32)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    await self._life(kind, random.Random(seed), Path(folder))
                except BaseException:
                    self._report(f"found by life {lives}, {kind}, its seed {seed}")
                    raise
            lives += 1
            self._look_at_memory(kind)
            self._report(
                f"{self.judged} frames: {self.answered} answers, {self.hung_up} ends, {self.left} waits given up; "
                f"{kind}, {resident_bytes() >> 20} MB"
            )

    async def _life(self, kind: str, rng: random.Random, folder: Path) -> None:
        target = Target(kind, folder)
        await target.start()
        place = Place(CLUSTER, NODE_ID, DIRECTORY_ID, features=dict(FEATURES))
        before = target.state()
        stranger = Stranger(rng, place, elects=kind != "administered")
        due = self.judged + min(self._frames, self.count - self.judged)
        running: set[asyncio.Task[None]] = set()
        while self.judged < due and place.epoch < FEW_EPOCHS_LEFT:
            self._look_around(target, place)
            if kind in ADMINISTERED and not place.broker_epochs and target.decides():
                await _register(target)
            frames = [stranger.frame() for _ in range(rng.randint(1, MOST_FRAMES))]
            running.add(asyncio.create_task(self._connection(target.port, frames)))
            if len(running) >= CONNECTIONS:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            target.judge()
        for each in running:
            await each
        if kind not in MAY_CHANGE:
            differing = [(one, other) for one, other in zip(before, target.state(), strict=True) if one != other]
            assert not differing, f"a stranger without rights has changed something: {differing}"
        await self._again(target)

    async def _again(self, target: Target) -> None:
        """It starts with what it has written, and nothing else."""
        if target.kind == "outvoted" or target.replica.replica.machine.epoch >= FEW_EPOCHS_LEFT:
            await target.stop()
            if target.promises.epoch >= LAST_EPOCH - 1:
                return
            await target.start()
            await target.stop()
            return
        if target.replica.replica.machine.epoch < FEW_EPOCHS_LEFT:
            await until(target.node.part.controller.is_active, lambda: f"it to decide: {target.standing()}")
        await target.stop()
        kept = target.image()
        await target.start()
        now = target.image()
        at = next((at for at, (one, other) in enumerate(zip(kept, now, strict=False)) if one != other), len(now))
        around = slice(max(0, at - 300), at + 300)
        assert now == kept, f"what was committed is not what was kept: {kept[around]!r} {now[around]!r}"
        await target.stop()

    def _look_around(self, target: Target, place: Place) -> None:
        replica = target.replica.replica
        place.epoch, place.end_offset = replica.machine.epoch, replica.quorum.end_offset
        image = target.node.part.metadata.recorded
        if target.kind in ADMINISTERED:
            place.broker_epochs = tuple(each.epoch for each in image.brokers.values())[:4]
            place.topic_ids = tuple(each.topic_id for each in image.topics.values())[:4]

    # -- one connection -----------------------------------------------------------------------------------------------

    async def _connection(self, port: int, frames: Sequence[Frame]) -> None:
        """Send all, end this side, and read all answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(b"".join(each.data for each in frames))
                writer.write_eof()
            await self._answers(reader, frames)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answers(self, reader: asyncio.StreamReader, frames: Sequence[Frame]) -> None:
        for each in frames:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    answer = await reader.readexactly(size)
            except TimeoutError:
                # A wait as long as the stranger has asked for: the connection is its own to end.
                self.left += 1
                return
            except (EOFError, ConnectionError):
                self.hung_up += 1
                return
            self.answered += 1
            if each.is_whole:
                self._judge(each, answer)

    def _judge(self, frame: Frame, answer: bytes) -> None:
        api = ApiKey(frame.api_key)
        try:
            _, body = decode_response(response_message(api), frame.version, answer)
        except DecodeError as error:
            raise AssertionError(f"{api.name} v{frame.version} is answered with {answer.hex()}: {error}") from error
        code = getattr(body, "error_code", 0)
        assert code in CODES, f"{api.name} v{frame.version} is answered with code {code}"
        self.codes[f"{api.name} {ErrorCode(code).name}"] += 1
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and api not in REFUSED_EVERYWHERE:
            raise AssertionError(f"{api.name} v{frame.version} {frame.data.hex()} is answered with {body}")

    # -- memory -------------------------------------------------------------------------------------------------------

    def _look_at_memory(self, kind: str) -> None:
        now = resident_bytes()
        first = self._most_bytes.setdefault(kind, now)
        assert now - first < GROWTH_BYTES, f"{now >> 20} MB after a life of {kind}; {first >> 20} after its first"


async def _register(target: Target) -> None:
    """A broker that topics may be put on, unless the controller is deposed meanwhile."""
    made: Any = wire.BrokerRegistrationRequest
    features = [
        made.Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in FEATURES.items()
    ]
    request = made(
        broker_id=1,
        cluster_id=CLUSTER,
        incarnation_id=bytes([1]) * 16,
        listeners=[made.Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        features=features,
        log_dirs=[bytes([7]) * 16],
    )
    answer = await _ask(target.port, request, 4)
    if not answer.error_code:
        beat = wire.BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=answer.broker_epoch, current_metadata_offset=1 << 40
        )
        await _ask(target.port, beat, 1)


async def _ask(port: int, request: Any, version: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_request(request.api_key, version, 1, "broker", request))
    size = int.from_bytes(await reader.readexactly(4), "big")
    _, answer = decode_response(response_message(request.api_key), version, await reader.readexactly(size))
    writer.close()
    return answer


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
