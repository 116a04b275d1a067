"""Listeners and advertised addresses as the container images make them of what their environments leave out.

KAFKA_LISTENERS is missing               the ports of KAFKA_ADVERTISED_LISTENERS, on every interface
neither is there                         PLAINTEXT on KAFKA_PORT, 9092 by default, on every interface
KAFKA_ADVERTISED_HOST_NAME, …_PORT       an address of the first listener (Kafka before 0.9, wurstmeister/kafka)
an advertised listener without a host    of a member of a cluster: the container's host name, as in Kafka; of a
                                         broker alone: none, clients go on with what they dialled
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from kbroker.config.images.names import Image
from kbroker.config.listener import PROTOCOLS, Listener, ListenerError, parse_listeners, parse_protocol_map

LISTENERS, ADVERTISED, PROTOCOL_MAP = "listeners", "advertised.listeners", "listener.security.protocol.map"
DEFAULT_PORT = "9092"


class Given(NamedTuple):
    """The text of a setting, and where it comes from, for people."""

    text: str
    origin: str

    def __repr__(self) -> str:
        return f"Given({self.origin})"  # The text may be a password.


Settings = MutableMapping[str, Given]


def split(text: str) -> list[str]:
    """The items of a list."""
    return [item for item in (each.strip() for each in text.split(",")) if item]


def name_of(listener: str) -> str:
    """The name of `NAME://host:port`, in capital letters."""
    return listener.partition("://")[0].strip().upper()


def controllers(settings: Mapping[str, Given]) -> set[str]:
    """The names of listeners of controllers."""
    given = settings.get("controller.listener.names")
    return set() if given is None else {each.upper() for each in split(given.text)}


def client_listeners(settings: Mapping[str, Given]) -> list[Listener]:
    """The broker's own listeners with their protocols; none where the broker will refuse the settings."""
    named = settings.get(PROTOCOL_MAP)
    try:
        protocols = dict(zip(PROTOCOLS, PROTOCOLS, strict=True)) if named is None else parse_protocol_map(named.text)
        for name in controllers(settings):
            protocols.setdefault(name, PROTOCOLS[0])
        parsed = parse_listeners(split(settings[LISTENERS].text), protocols)
    except (ListenerError, KeyError):
        return []
    return [each for each in parsed if each.name not in controllers(settings)]


def is_member(settings: Mapping[str, Given]) -> bool:
    """Whether the broker is one of a cluster, where others have to find it by what it advertises."""
    roles = settings.get("process.roles")
    if roles is not None and roles.text.strip():
        return split(roles.text) == ["broker"]
    zookeeper = settings.get("zookeeper.connect")
    return zookeeper is not None and bool(zookeeper.text.strip())


def complete_listeners(settings: Settings, image: Image, host_name: str) -> None:
    """Fill in what the images would."""
    _take_protocol_names(settings)
    origin = settings.get(ADVERTISED, Given("", "default of the image")).origin
    port = _number(settings.pop("port", None), DEFAULT_PORT)
    host = settings.pop("host.name", Given("", "")).text.strip()
    if not _text(settings, LISTENERS):
        advertised = split(_text(settings, ADVERTISED))
        plain = all(name_of(each) == PROTOCOLS[0] for each in advertised)
        if not advertised or (image is Image.BITNAMI and plain):
            settings[LISTENERS] = Given(f"PLAINTEXT://{host}:{port}", "default of the image")
        else:
            settings[LISTENERS] = Given(",".join(map(_everywhere, advertised)), origin)
    _take_advertised_name(settings, port, host_name)
    _name_hosts(settings, host_name)


def _take_advertised_name(settings: Settings, port: str, host_name: str) -> None:
    name, number = settings.pop("advertised.host.name", None), settings.pop("advertised.port", None)
    given = name or number
    if given is None or _text(settings, ADVERTISED):
        return
    listeners = [each for each in split(settings[LISTENERS].text) if name_of(each) not in controllers(settings)]
    if not listeners:
        return
    between = _text(settings, "inter.broker.listener.name").strip().upper()
    first = next((each for each in listeners if name_of(each) == between), listeners[0])
    host = name.text.strip() if name is not None and name.text.strip() else host_name
    own_port = first.rpartition(":")[2] or port
    settings[ADVERTISED] = Given(f"{name_of(first)}://{host}:{_number(number, own_port)}", given.origin)


def _name_hosts(settings: Settings, host_name: str) -> None:
    """Give hosts to advertised listeners that have none, or leave such listeners out."""
    member = is_member(settings)
    advertised = settings.get(ADVERTISED)
    if advertised is None or not advertised.text.strip():
        if not member:
            return
        advertised = Given(settings[LISTENERS].text.replace("://0.0.0.0:", "://:"), settings[LISTENERS].origin)
    found = []
    for each in split(advertised.text):
        name, _, address = each.partition("://")
        if not address.startswith(":"):
            found.append(each)
        elif member:
            found.append(f"{name}://{host_name}{address}")
    settings[ADVERTISED] = Given(",".join(found), advertised.origin)
    if not found:
        del settings[ADVERTISED]


def _take_protocol_names(settings: Settings) -> None:
    """wurstmeister's names of one listener for clients and one that the container itself has."""
    outside, inside = settings.pop("advertised.protocol.name", None), settings.pop("protocol.name", None)
    between_port = settings.pop("inter.broker.port", None)
    if outside is None or not _text(settings, PROTOCOL_MAP):
        return
    origin = outside.origin
    listeners, advertised = split(_text(settings, LISTENERS)), split(_text(settings, ADVERTISED))
    port = _number(settings.get("port"), DEFAULT_PORT)
    number = settings.pop("advertised.port", None)
    if number is not None:
        host = settings.pop("advertised.host.name", Given("", "")).text.strip()
        listeners = [f"{outside.text}://:{number.text.strip()}"]
        advertised = [f"{outside.text}://{host}:{number.text.strip()}"]
    own = (inside or outside).text.strip()
    if own.upper() not in map(name_of, listeners):
        listeners.append(f"{own}://:{port}")
        advertised.append(f"{own}://:{port}")
    between = _text(settings, "inter.broker.listener.name").strip() or own
    settings["inter.broker.listener.name"] = Given(between, origin)
    if between.upper() not in {name_of(each) for each in listeners}:
        own_port = _number(between_port, str(int(port) + 1))
        listeners.append(f"{between}://:{own_port}")
        advertised.append(f"{between}://:{own_port}")
    settings[LISTENERS] = Given(",".join(listeners), origin)
    settings[ADVERTISED] = Given(",".join(advertised), origin)


def _everywhere(listener: str) -> str:
    return f"{name_of(listener)}://:{listener.rpartition(':')[2]}"


def _text(settings: Mapping[str, Given], key: str) -> str:
    given = settings.get(key)
    return "" if given is None else given.text


def _number(given: Given | None, default: str) -> str:
    return given.text.strip() if given is not None and given.text.strip().isdigit() else default
