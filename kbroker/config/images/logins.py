"""Login modules of listeners: Java's login file, which KAFKA_OPTS names, and the users that bitnami's variables name.

KAFKA_OPTS=-Djava.security.auth.login.config=FILE
    KafkaServer, or <listener>.KafkaServer     the modules of each mechanism of each listener with SASL
    Client                                     the broker's login at ZooKeeper

KAFKA_CLIENT_USERS, KAFKA_CLIENT_PASSWORDS                     users of PLAIN, and of SCRAM from the first start on
KAFKA_INTER_BROKER_USER, KAFKA_INTER_BROKER_PASSWORD           the one as which brokers log in at each other
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kbroker.config.images.listeners import Given, Settings, client_listeners, split
from kbroker.config.images.names import LOGIN_FILE, ImageError
from kbroker.config.jaas import JaasError, LoginModule, parse_login_file
from kbroker.config.listener import Listener

MECHANISMS = "sasl.enabled.mechanisms"
_JAAS = "sasl.jaas.config"
_ALL_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
"""bitnami's, where nothing is said."""
_PACKAGE = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_OPTION = re.compile(rf"-D{re.escape(LOGIN_FILE)}=(\"[^\"]*\"|'[^']*'|\S+)")
_NO_ZOOKEEPER_LOGIN = "-Dzookeeper.sasl.client=false"


@dataclass(frozen=True, slots=True)
class User:
    """A user of a mechanism."""

    name: str
    password: str = field(repr=False)


def login_file(options: str) -> PurePosixPath | None:
    """The file that options of the Java machine name."""
    found = _OPTION.search(options)
    return None if found is None else PurePosixPath(found[1].strip("\"'"))


def take_login_file(settings: Settings, options: Given, path: PurePosixPath, root: Path) -> None:
    """Give listeners the modules of a login file.  ImageError where it asks for what no listener does."""
    sections = _read(path, options.origin, root)
    listeners = _with_sasl(settings)
    servers = [name for name in sections if name.rpartition(".")[2] == "KafkaServer"]
    if servers and not listeners:
        raise ImageError(
            f"{options.origin}: {path} has users of a broker ({servers[0]}), and no listener asks for them: "
            "listeners or listener.security.protocol.map has to name SASL_PLAINTEXT or SASL_SSL"
        )
    for listener in listeners:
        modules = sections.get(f"{listener.name.lower()}.KafkaServer") or sections.get("KafkaServer")
        if modules is None:
            if _is_complete(settings, listener):
                continue
            raise ImageError(
                f"{options.origin}: {path} has no section KafkaServer, which listener {listener.name} needs"
            )
        for mechanism in _mechanisms(settings, listener):
            wanted = _MODULES.get(mechanism, "").rpartition(".")[2]
            module = next((each for each in modules if each.short_name == wanted), None)
            if module is not None:
                settings.setdefault(_key(listener, mechanism), Given(module.text(), options.origin))
    if "Client" in sections and _NO_ZOOKEEPER_LOGIN not in options.text:
        _log_in_at_zookeeper(settings, sections["Client"], options, path)


def _log_in_at_zookeeper(
    settings: Settings, modules: Sequence[LoginModule], options: Given, path: PurePosixPath
) -> None:
    connect = settings.get("zookeeper.connect")
    if connect is None or not connect.text.strip():
        return
    if not modules:
        return
    given = modules[0].options
    if "username" not in given or "password" not in given:
        raise ImageError(f"{options.origin}: section Client of {path} has no username and password for ZooKeeper")
    settings.setdefault("kbroker.zookeeper.sasl.username", Given(given["username"], options.origin))
    settings.setdefault("kbroker.zookeeper.sasl.password", Given(given["password"], options.origin))


def _read(path: PurePosixPath, origin: str, root: Path) -> Mapping[str, tuple[LoginModule, ...]]:
    try:
        return parse_login_file(root.joinpath(path.relative_to("/")).read_text())
    except (OSError, ValueError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else str(error) if isinstance(error, JaasError) else "no text"
        )
        raise ImageError(f"{origin}: {path}: {reason}") from None


@dataclass(frozen=True, slots=True)
class BitnamiUsers:
    """What bitnami's variables say of users."""

    clients: tuple[User, ...]
    broker: User | None

    @classmethod
    def read(cls, taken: Mapping[str, Given]) -> BitnamiUsers:
        """ImageError where there are not as many passwords as users."""
        names = _words(taken, "KAFKA_CLIENT_USERS", "KAFKA_BROKER_USER")
        passwords = _words(taken, "KAFKA_CLIENT_PASSWORDS", "KAFKA_BROKER_PASSWORD")
        if len(names) != len(passwords):
            raise ImageError(
                f"environment KAFKA_CLIENT_USERS names {len(names)} users, KAFKA_CLIENT_PASSWORDS has {len(passwords)} "
                "passwords"
            )
        own = taken.get("KAFKA_INTER_BROKER_USER"), taken.get("KAFKA_INTER_BROKER_PASSWORD")
        if (own[0] is None) != (own[1] is None):
            raise ImageError("environment KAFKA_INTER_BROKER_USER and KAFKA_INTER_BROKER_PASSWORD go together")
        broker = None if own[0] is None or own[1] is None else User(own[0].text, own[1].text)
        return cls(tuple(map(User, names, passwords)), broker)

    @property
    def all(self) -> tuple[User, ...]:
        """The broker's own among them."""
        return self.clients if self.broker is None else (*self.clients, self.broker)


def take_users(settings: Settings, users: BitnamiUsers) -> tuple[tuple[str, User], ...]:
    """Give listeners bitnami's users; (mechanism, user) of those of SCRAM, which a first start makes.  ImageError."""
    listeners = _with_sasl(settings)
    if not listeners:
        if users.all:
            raise ImageError(
                "environment KAFKA_CLIENT_USERS, KAFKA_INTER_BROKER_USER: there are users, and no listener asks for "
                "them: KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP has to name SASL_PLAINTEXT or SASL_SSL"
            )
        return ()
    settings.setdefault(MECHANISMS, Given(_ALL_MECHANISMS, "default of the image"))
    if not users.all:
        if all(_is_complete(settings, each) for each in listeners):
            return ()
        raise ImageError(
            f"listener {listeners[0].name} asks its clients who they are, and neither KAFKA_CLIENT_USERS with "
            "KAFKA_CLIENT_PASSWORDS nor a login file says who may come; kbroker makes no user with a password that "
            "everybody knows"
        )
    between = settings.get("inter.broker.listener.name", Given("INTERNAL", "")).text.upper()
    scram: dict[tuple[str, str], tuple[str, User]] = {}
    for listener in listeners:
        for mechanism in _mechanisms(settings, listener):
            if mechanism == "PLAIN":
                own = users.broker if listener.name == between else None
                text = _plain_module(users.all if own else users.clients, own)
                settings.setdefault(_key(listener, mechanism), Given(text, "environment KAFKA_CLIENT_USERS"))
            elif mechanism.startswith("SCRAM-"):
                scram |= {(mechanism, user.name): (mechanism, user) for user in users.all}
    return tuple(scram.values())


def _plain_module(users: Iterable[User], own: User | None) -> str:
    options = {} if own is None else {"username": own.name, "password": own.password}
    return LoginModule(
        _MODULES["PLAIN"], "REQUIRED", options | {f"user_{user.name}": user.password for user in users}
    ).text()


def _with_sasl(settings: Settings) -> list[Listener]:
    return [each for each in client_listeners(settings) if each.protocol.startswith("SASL_")]


def _mechanisms(settings: Mapping[str, Given], listener: Listener) -> Iterator[str]:
    own = settings.get(f"listener.name.{listener.name.lower()}.{MECHANISMS}") or settings.get(MECHANISMS)
    return iter(["GSSAPI"] if own is None else [each.upper() for each in split(own.text)])


def _is_complete(settings: Mapping[str, Given], listener: Listener) -> bool:
    """Whether every mechanism of a listener has its module, or needs none."""
    return all(
        _key(listener, mechanism) in settings or mechanism.startswith("SCRAM-")
        for mechanism in _mechanisms(settings, listener)
    )


def _key(listener: Listener, mechanism: str) -> str:
    return f"listener.name.{listener.name.lower()}.{mechanism.lower()}.{_JAAS}"


def _words(taken: Mapping[str, Given], *names: str) -> list[str]:
    given = next((taken[name] for name in names if name in taken), None)
    return [] if given is None else [word for word in re.split(r"[,;\s]+", given.text) if word]
