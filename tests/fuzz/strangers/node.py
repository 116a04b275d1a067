"""The product's own controller in this process, and what may not become of it whatever strangers send."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from kbroker.assembly.controller_node import ControllerNode
from kbroker.assembly.quorum import ReplicaParts
from kbroker.assembly.quorum_node import NodeReplica
from kbroker.cluster.kraft.bootstrap import (
    BOOTSTRAP_FILE,
    FIRST_VOTERS_FILE,
    bootstrap_checkpoint,
    initial_voters_checkpoint,
)
from kbroker.cluster.raft.election import ReplicaKey
from kbroker.cluster.raft.machine import Lead, Persist
from kbroker.cluster.raft.voter_set import Voter, VoterSet
from kbroker.config import BrokerConfig
from kbroker.metadata.features import METADATA_VERSION
from kbroker.metadata.image import ClusterImage, Endpoint
from kbroker.metadata.metadata_record import metadata_record
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    META_PROPERTIES,
    MetaProperties,
    encode_meta_properties,
)
from tests.ports import free_port

CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qg"
NODE_ID: Final = 3001
DIRECTORY_ID: Final = bytes(range(16))
LISTENER: Final = "CONTROLLER"
METADATA_LEVEL: Final = 27
CLOSES_WITHIN_SECONDS = 30.0

AUTHORIZER: Final = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
KINDS: Final = {
    "administered": {**AUTHORIZER, "super.users": "User:ANONYMOUS", "delegation.token.secret.key": "secret"},
    "open": {"controller.quorum.election.timeout.ms": "20", "controller.quorum.fetch.timeout.ms": "100"},
    "denied": {**AUTHORIZER, "super.users": "User:admin"},
    "outvoted": {"controller.quorum.election.timeout.ms": "300"},
    "unauthenticated": {
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="secret" user_admin="secret";'
        ),
    },
}
"""Settings of each: a quorum of one that any client may change, and leads all the while; one that strangers depose as
well; one in which they have no rights; one of three voters that hears from none of the others; one that knows nobody
before authentication."""
MAY_CHANGE: Final = frozenset({"administered", "open", "outvoted"})


def what_counts(image: ClusterImage) -> str:
    """All that records say, but for what a quiet controller writes by itself."""
    security = image.security
    tables: list[Any] = [image.brokers, image.topics, image.configs, image.quotas, image.features.chosen]
    return repr([sorted(map(repr, each.items())) for each in (*tables, security.acls, security.scram, security.tokens)])


class Errors(logging.Handler):
    """What the product logs of errors that no handler expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.found.append(logging.Formatter().format(record))

    def unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody awaits."""
        text = repr(context)
        error = context.get("exception")
        if isinstance(error, socket.gaierror):
            return  # uvloop keeps a look-up of a name whose connection attempt was given up, and says so at its end.
        if error is not None:
            text += logging.Formatter().formatException((type(error), error, error.__traceback__))
        self.found.append(text)


class WatchedReplica(NodeReplica):
    """Says what the replica promises: one vote and one leader for each epoch, and no way back."""

    def __init__(self, parts: ReplicaParts, promises: Promises) -> None:
        super().__init__(parts)
        take = self.replica.take

        def taken(steps: Sequence[Any]) -> None:
            for step in steps:
                if isinstance(step, Persist):
                    promises.take(step.election)
                elif isinstance(step, Lead):
                    promises.led.append(step.epoch)
            take(steps)

        self.replica.take = taken  # type: ignore[method-assign]


class Promises:
    """What a node's files have said, over its restarts."""

    def __init__(self) -> None:
        self.epoch = 0
        self.votes: dict[int, Any] = {}
        self.leaders: dict[int, int] = {}
        self.led: list[int] = []
        self.count = 0

    def take(self, election: Any) -> None:
        self.count += 1
        assert self.epoch <= election.epoch < 1 << 31, f"epoch {election.epoch} follows {self.epoch}"
        self.epoch = election.epoch
        if election.voted is not None:
            voted = self.votes.setdefault(election.epoch, election.voted)
            assert voted == election.voted, f"two votes in epoch {election.epoch}: {voted}, {election.voted}"
        if election.leader_id >= 0:
            leader = self.leaders.setdefault(election.epoch, election.leader_id)
            assert leader == election.leader_id, f"two leaders in epoch {election.epoch}"
        assert election.leader_id >= -1, f"no node has the id {election.leader_id}"


class Target:
    """A controller over a directory, which outlives it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder / "metadata"
        self.promises = Promises()
        self._others = [free_port(), free_port()]
        self._own = free_port()
        self._format()

    def _format(self) -> None:
        place = self.folder / CLUSTER_METADATA_DIRECTORY
        place.mkdir(parents=True)
        if self.kind != "outvoted":
            own = Voter(ReplicaKey(NODE_ID, DIRECTORY_ID), {LISTENER: Endpoint("127.0.0.1", self._own)})
            (place / FIRST_VOTERS_FILE).write_bytes(initial_voters_checkpoint(VoterSet({NODE_ID: own}), 0))
        record = metadata_record(wire.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_LEVEL))
        (self.folder / BOOTSTRAP_FILE).write_bytes(bootstrap_checkpoint([record], 0))
        meta = MetaProperties(CLUSTER, NODE_ID, DIRECTORY_ID)
        (self.folder / META_PROPERTIES).write_bytes(encode_meta_properties(meta))

    def _settings(self) -> dict[str, str]:
        at = f"127.0.0.1:{self._own}"
        others = [f"{NODE_ID + 1 + each}@127.0.0.1:{port}" for each, port in enumerate(self._others)]
        is_static = self.kind == "outvoted"
        return {
            "process.roles": "controller",
            "node.id": str(NODE_ID),
            "listeners": f"{LISTENER}://{at}",
            "controller.listener.names": LISTENER,
            "log.dirs": str(self.folder),
            "metrics.listener": "none",
            **(
                {"controller.quorum.voters": ",".join([f"{NODE_ID}@{at}", *others])}
                if is_static
                else {"controller.quorum.bootstrap.servers": at}
            ),
            **KINDS[self.kind],
        }

    async def start(self) -> None:
        """Until it takes connections and, where it can, leads."""
        loop = asyncio.get_running_loop()
        self.errors = Errors()
        logging.getLogger("kbroker").addHandler(self.errors)
        loop.set_exception_handler(self.errors.unhandled)

        def make_replica(parts: ReplicaParts) -> WatchedReplica:
            self.replica = WatchedReplica(parts, self.promises)
            return self.replica

        self.node = ControllerNode(BrokerConfig.from_mapping(self._settings()), loop, make_replica=make_replica)
        self._running = loop.create_task(self.node.start())
        if self.kind != "outvoted":
            await asyncio.wait_for(asyncio.shield(self._running), 60)
            await until(self.decides, lambda: f"it to decide: {self.standing()}")
        else:
            await until(lambda: self._running.done() or self.node.part.has_begun, lambda: "it to take connections")
        self.port = self.node.node.listeners.all[0].port

    def decides(self) -> bool:
        """Whether it is active, and has what a new cluster begins with."""
        return (
            self.node.part.controller.is_active()
            and METADATA_VERSION in self.node.part.metadata.recorded.features.chosen
        )

    def connections(self) -> int:
        """Those that are open."""
        return len(self.node.node.listeners.all[0]._addresses)

    def image(self) -> str:
        """What the committed records have come to."""
        return what_counts(self.node.part.metadata.recorded)

    def state(self) -> tuple[Any, ...]:
        """What a stranger without rights may not change."""
        machine, history = self.replica.replica.machine, self.replica.replica.history
        return machine.epoch, machine.leader_id, machine.state, machine._voted, history.last, self.image()

    def standing(self) -> str:
        """Where the replica is, for a complaint."""
        replica = self.replica.replica
        machine = replica.machine
        return (
            f"{machine.state} in epoch {machine.epoch} of {machine.leader_id}, voters {dict(machine.voters.keys)}, "
            f"due at {machine.deadline():.3f} of {asyncio.get_running_loop().time():.3f} s, "
            f"log to {replica.quorum.end_offset}, committed to {replica.high_watermark}, "
            f"applied to {replica.applied_end}"
        )

    async def stop(self) -> None:
        """In order, with no connection left."""
        node = self.node
        await until(lambda: not self.connections(), lambda: f"the end of {self.connections()} connections")
        node.node.stopping.set()
        await asyncio.wait_for(self._running, 60)
        await asyncio.wait_for(node.stop(), 60)
        logging.getLogger("kbroker").removeHandler(self.errors)
        self.judge()

    def judge(self) -> None:
        """Raise what has been found."""
        assert not self.errors.found, "\n".join(self.errors.found[:3])
        assert not self.node.node.failed, self.node.readiness.text


async def until(is_so: Callable[[], bool], what: Callable[[], str], seconds: float = CLOSES_WITHIN_SECONDS) -> None:
    """Wait; AssertionError where it does not come in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not is_so():
        assert loop.time() < end, f"waited {seconds} s for {what()}"
        await asyncio.sleep(0.005)
