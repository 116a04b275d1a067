"""Settings that say who a broker is in a cluster and where it is found: those that contradict each other or mislead.

The reasons are Kafka's words where Kafka refuses (`KafkaConfig`, seen with 4.3.1 and 3.9.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.config.together import Get

if TYPE_CHECKING:
    from kbroker.config.listener import Listener

_NO_VOTER = (
    "and kbroker is no voter of a KRaft quorum: it would be a cluster of its own. A broker of that quorum has "
    "process.roles=broker, and its controllers are Apache Kafka's (docs/cluster.md)"
)
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
ADDRESSES_OF_OLD = ("port", "host.name", "advertised.host.name", "advertised.port")
"""What named a broker's address before Kafka 0.10 had listeners."""


class _Given(Protocol):
    @property
    def text(self) -> str:
        """The value, as it was set."""

    @property
    def origin(self) -> str:
        """Where it was set, for people."""


def wrong_place(get: Get, explicit: Collection[str], node_id: int, listeners: Sequence[str]) -> tuple[str, str] | None:
    """The first setting that contradicts another about the broker's place, and why; None when all fit."""
    if {"node.id", "broker.id"} <= set(explicit) and get("node.id") != get("broker.id"):
        return "node.id", "You must set `node.id` to the same value as `broker.id`."
    named = get("inter.broker.listener.name")
    if named is not None:
        key = "inter.broker.listener.name"
        if "security.inter.broker.protocol" in explicit:
            return key, "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        if named.upper() not in listeners:
            known = [
                item.partition(":")[0].strip().upper() for item in get("listener.security.protocol.map").split(",")
            ]
            if named.upper() not in known:
                return key, (
                    f"Listener with name {named} defined in {key} not found in listener.security.protocol.map."
                )
            return key, (
                f"{key} must be a listener name defined in advertised.listeners. The valid options based on currently "
                f"configured listeners are {','.join(listeners)}"
            )
    # The default says what a node is that is its whole cluster, and nothing of what is meant.
    return _wrong_quorum(get, node_id, get("process.roles") if "process.roles" in explicit else [])


def _wrong_quorum(get: Get, node_id: int, roles: Sequence[str]) -> tuple[str, str] | None:
    """The setting by which a node would start as another one than is meant: as a cluster of its own, where it is to be
    a voter among others; or as a broker of a KRaft quorum that it cannot find."""
    voters, bootstrap = get("controller.quorum.voters"), get("controller.quorum.bootstrap.servers")
    ids = {each.partition("@")[0].strip() for each in voters if "@" in each}
    zookeeper = (get("zookeeper.connect") or "").strip()
    if zookeeper and roles:
        return "zookeeper.connect", (
            f"a node with process.roles={','.join(roles)} has its metadata from a KRaft quorum, or keeps it itself: "
            "unset one of the two"
        )
    if zookeeper and (voters or bootstrap):
        key = "controller.quorum.voters" if voters else "controller.quorum.bootstrap.servers"
        return key, (
            "a broker with zookeeper.connect has its metadata from ZooKeeper, and kbroker does not take part in a "
            "migration to KRaft: unset one of the two"
        )
    if get("kbroker.workers") != "1" and (zookeeper or roles == ["broker"]):
        other = "zookeeper.connect" if zookeeper else "process.roles=broker"
        return "kbroker.workers", (
            f"workers are a cluster of their own on one host, and with {other} the broker is to be a member of another "
            "one: start each broker of a host by itself, with settings of its own"
        )
    if roles == ["broker"]:
        return _wrong_broker(get, node_id, ids, has_quorum=bool(voters or bootstrap))
    others = sorted(ids - {str(node_id)})
    if others:
        return "controller.quorum.voters", (
            f"it names controllers other than this node {node_id} ({', '.join(others)}), {_NO_VOTER}"
        )
    if len(bootstrap) > 1:
        return "controller.quorum.bootstrap.servers", f"it names {len(bootstrap)} controllers, {_NO_VOTER}"
    return None


def _wrong_broker(get: Get, node_id: int, voters: Collection[str], *, has_quorum: bool) -> tuple[str, str] | None:
    """The same for a broker whose controllers are other nodes."""
    if not has_quorum:
        return "process.roles", (
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers. A single node that "
            "needs no others has process.roles=broker,controller"
        )
    if str(node_id) in voters:
        return "process.roles", (
            "If process.roles contains just the 'broker' role, the node id "
            f"{node_id} must not be included in the set of voters controller.quorum.voters={sorted(voters)}"
        )
    if not get("controller.listener.names"):
        return "controller.listener.names", (
            "controller.listener.names must contain at least one value when running KRaft with just the broker role"
        )
    return None


def origins_of_surprise(settings: Mapping[str, _Given], listeners: Sequence[Listener]) -> Iterator[str]:
    """Warnings about values that are accepted, but are probably not what was meant."""
    for key, setting in settings.items():
        if "${" in setting.text:
            yield f"{key} ({setting.origin}) has ${{…}} in its value, which nothing replaces"
    misleading = [key for key in (*ADDRESSES_OF_OLD, "advertised.listeners") if key in settings]
    if misleading and "listeners" not in settings and all(each.host in LOOPBACK for each in listeners):
        where = ", ".join(map(str, listeners))
        ignored = [key for key in misleading if key in ADDRESSES_OF_OLD]
        says = "are" if len(ignored) > 1 else "is"
        why = f"; {', '.join(ignored)} {says} ignored" if ignored else ""
        yield (
            f"listeners is not set: the broker listens on loopback alone, {where}, and no other machine reaches it"
            f"{why}.  For all interfaces: listeners=PLAINTEXT://:9092"
        )
