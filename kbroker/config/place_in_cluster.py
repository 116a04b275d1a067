"""Settings that say who a broker is in a cluster and where it is found: those that contradict each other or mislead.

The reasons are Kafka's words where Kafka refuses (`KafkaConfig`, seen with 4.3.1 and 3.9.1).
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.config.together import Get

if TYPE_CHECKING:
    from kbroker.config.listener import Listener

_NO_ROLE = (
    "and process.roles is not set: it would be a cluster of its own. A node of that quorum has process.roles=broker, "
    "controller or broker,controller (docs/cluster.md)"
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
    # The default says what a node is that is its whole cluster, and nothing of what is meant.
    roles = list(dict.fromkeys(get("process.roles"))) if "process.roles" in explicit else []
    if named is not None and roles == ["controller"]:
        return _wrong_at_controller(get, named) or _wrong_quorum(get, node_id, roles)
    if named is not None:
        key = "inter.broker.listener.name"
        if "security.inter.broker.protocol" in explicit:
            return key, "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        if named.upper() not in listeners:
            if named.upper() not in _mapped(get):
                return key, (
                    f"Listener with name {named} defined in {key} not found in listener.security.protocol.map."
                )
            return key, (
                f"{key} must be a listener name defined in advertised.listeners. The valid options based on currently "
                f"configured listeners are {','.join(listeners)}"
            )
    return _wrong_quorum(get, node_id, roles)


def _wrong_at_controller(get: Get, named: str) -> tuple[str, str] | None:
    """What is wrong with `inter.broker.listener.name` at a node that is no broker."""
    key = "inter.broker.listener.name"
    if named.upper() in (each.upper() for each in get("controller.listener.names")):
        return key, (
            "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration "
            "value when process.roles=controller"
        )
    if named.upper() not in _mapped(get):
        return key, f"Listener with name {named} defined in {key} not found in listener.security.protocol.map."
    return None


def _mapped(get: Get) -> list[str]:
    """The listeners that have a protocol: controllers' have PLAINTEXT where nothing is said of them."""
    mapped = [item.partition(":")[0].strip().upper() for item in get("listener.security.protocol.map").split(",")]
    return [*mapped, *(each.upper() for each in get("controller.listener.names"))]


def voter_ids(get: Get) -> frozenset[str]:
    """The ids in `controller.quorum.voters`, as they stand there."""
    return frozenset(each.partition("@")[0].strip() for each in get("controller.quorum.voters") if "@" in each)


def names_a_quorum(get: Get) -> bool:
    """Whether the settings name controllers, this node or others."""
    return bool(get("controller.quorum.voters") or get("controller.quorum.bootstrap.servers"))


def names_another_voter(get: Get, node_id: int, own: Sequence[Listener]) -> bool:
    """Whether the settings name a controller besides this node, or one that may be another.

    `own`: the listeners of this node for controllers, as it has them and as it advertises them."""
    return bool(voter_ids(get) - {str(node_id)}) or not all(
        _is_own(each, own) for each in get("controller.quorum.bootstrap.servers")
    )


def _is_own(address: str, own: Sequence[Listener]) -> bool:
    host, _, port = address.strip().rpartition(":")
    host = host.strip("[]").lower()
    at = [each.host.strip("[]").lower() for each in own if str(each.port) == port]
    return bool(at) and (host in LOOPBACK or host in at or host == socket.gethostname().lower())


def wrong_controller_listeners(
    roles: Collection[str], controllers: Sequence[str], listeners: Sequence[str]
) -> tuple[str, str] | None:
    """The setting by which a voter would have no listener for other voters, or one too many, and why.

    `controllers`: `controller.listener.names`; `listeners`: the names in `listeners`.
    """
    key, where = "controller.listener.names", "the 'listeners' configuration when running the KRaft controller role"
    if not controllers:
        return key, f'Missing required configuration "{key}" which has no default value.'
    if "broker" not in roles and any(each not in controllers for each in listeners):
        return "listeners", (
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller"
        )
    if not any(each in listeners for each in controllers):
        return key, f"{key} must contain at least one value appearing in {where}"
    if any(each not in listeners for each in controllers):
        return key, f"{key} must only contain values appearing in {where}"
    if "broker" in roles and all(each in controllers for each in listeners):
        return "listeners", (
            "There must be at least one broker advertised listener. Perhaps all listeners appear in "
            "controller.listener.names?"
        )
    return None


def _wrong_quorum(get: Get, node_id: int, roles: Sequence[str]) -> tuple[str, str] | None:
    """The setting by which a node would start as another one than is meant: as a cluster of its own, where it is to be
    a voter among others; or as a broker of a KRaft quorum that it cannot find."""
    voters, bootstrap = get("controller.quorum.voters"), get("controller.quorum.bootstrap.servers")
    ids, has_quorum = voter_ids(get), names_a_quorum(get)
    is_voter = roles == ["controller"] or ("controller" in roles and has_quorum)
    zookeeper = (get("zookeeper.connect") or "").strip()
    if zookeeper and roles:
        return "zookeeper.connect", (
            f"a node with process.roles={','.join(roles)} has its metadata from a KRaft quorum, or keeps it itself: "
            "unset one of the two"
        )
    if zookeeper and has_quorum:
        key = "controller.quorum.voters" if voters else "controller.quorum.bootstrap.servers"
        return key, (
            "a broker with zookeeper.connect has its metadata from ZooKeeper, and kbroker does not take part in a "
            "migration to KRaft: unset one of the two"
        )
    if get("kbroker.workers") != "1" and (zookeeper or roles == ["broker"] or is_voter):
        other = "zookeeper.connect" if zookeeper else f"process.roles={','.join(roles)}"
        return "kbroker.workers", (
            f"workers are a cluster of their own on one host, and with {other} the broker is to be a member of another "
            "one: start each broker of a host by itself, with settings of its own"
        )
    if roles == ["broker"]:
        return _wrong_broker(get, node_id, ids, has_quorum=has_quorum)
    if is_voter:
        return _wrong_voter(node_id, ids, has_quorum=has_quorum)
    others = sorted(ids - {str(node_id)})
    if others:
        return "controller.quorum.voters", (
            f"it names controllers other than this node {node_id} ({', '.join(others)}), {_NO_ROLE}"
        )
    if len(bootstrap) > 1:
        return "controller.quorum.bootstrap.servers", f"it names {len(bootstrap)} controllers, {_NO_ROLE}"
    return None


_NO_QUORUM = (
    "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers "
    "or controller.quorum.voters must contain a parseable set of controllers."
)


def _wrong_voter(node_id: int, voters: Collection[str], *, has_quorum: bool) -> tuple[str, str] | None:
    """The same for a node with the controller role in a quorum of its own process or of several nodes."""
    if not has_quorum:
        return "process.roles", _NO_QUORUM
    if voters and str(node_id) not in voters:
        named = ", ".join(sorted(voters, key=lambda each: (len(each), each)))
        return "process.roles", (
            f"If process.roles contains the 'controller' role, the node id {node_id} must be included in the set of "
            f"voters controller.quorum.voters=Set({named})"
        )
    return None


def _wrong_broker(get: Get, node_id: int, voters: Collection[str], *, has_quorum: bool) -> tuple[str, str] | None:
    """The same for a broker whose controllers are other nodes."""
    if not has_quorum:
        return "process.roles", f"{_NO_QUORUM} A single node that needs no others has process.roles=broker,controller"
    if str(node_id) in voters:
        return "process.roles", (
            "If process.roles contains just the 'broker' role, the node id "
            f"{node_id} must not be included in the set of voters controller.quorum.voters={sorted(voters)}"
        )
    if not get("controller.listener.names"):
        return "controller.listener.names", (
            "controller.listener.names must contain at least one value when running KRaft with just the broker role"
        )
    if get("controller.quorum.auto.join.enable"):
        return "controller.quorum.auto.join.enable", (
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role."
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
