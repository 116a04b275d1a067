"""Broker settings of the environment by which Kafka's container images are set up.

`KBROKER_KAFKA_VARIABLES=obey`, which kbroker's image sets, asks for it.  What a variable names as `log.dirs` has the
place of an environment variable: above a mounted server.properties, below `KBROKER_LOG_DIRS`.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from kbroker.config.images.directories import BITNAMI_CONFIG, MOUNTED_SETTINGS, data_directory, mounts_here
from kbroker.config.images.listeners import Given, client_listeners, complete_listeners, split
from kbroker.config.images.logins import BitnamiUsers, User, login_file, take_login_file, take_users
from kbroker.config.images.meaningless import REPORTERS, line_about, why_meaningless, without_confluents
from kbroker.config.images.names import (
    HOME_VARIABLE,
    Image,
    ImageError,
    asks_for_protection,
    image_of,
    is_of_an_image,
    setting_of,
)
from kbroker.config.images.stores import is_of_a_store, take_bitnamis_stores, take_stores
from kbroker.config.images.values import written
from kbroker.config.judgement import Verdict, judge
from kbroker.config.properties import PropertiesError, decode_properties, parse_properties

_OPTIONS = "KAFKA_OPTS"
_ROOT_LEVEL = "KAFKA_LOG4J_ROOT_LOGLEVEL"
_LEVELS = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERROR": "error",
    "FATAL": "error",
}
_NO = ("no", "false", "0")
_OF_THE_IMAGE = "default of the image"
_SERVER_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
    }
)
"""What Kafka's own server.properties has that is not the default."""
BASE: Mapping[Image, Mapping[str, str]] = MappingProxyType(
    {Image.BITNAMI: _SERVER_PROPERTIES, Image.WURSTMEISTER: _SERVER_PROPERTIES}
)
"""The images that write the variables into Kafka's server.properties; the others begin with nothing."""
_USERS = frozenset(
    {
        "KAFKA_BROKER_PASSWORD",
        "KAFKA_BROKER_USER",
        "KAFKA_CLIENT_PASSWORDS",
        "KAFKA_CLIENT_USERS",
        "KAFKA_INTER_BROKER_PASSWORD",
        "KAFKA_INTER_BROKER_USER",
    }
)
_OF_CONTROLLERS = frozenset({"KAFKA_CONTROLLER_USER", "KAFKA_CONTROLLER_PASSWORD"})
_AT_FIRST_START = frozenset(
    {"KAFKA_CLUSTER_ID", "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR", "KAFKA_KRAFT_CLUSTER_ID"}
)
_AT_ZOOKEEPER = frozenset({"KAFKA_ZOOKEEPER_PASSWORD", "KAFKA_ZOOKEEPER_PROTOCOL", "KAFKA_ZOOKEEPER_USER"})
_NOT_WRITTEN = _USERS | _OF_CONTROLLERS | _AT_FIRST_START | _AT_ZOOKEEPER | {_OPTIONS}
"""What is no setting's value: it is the images' scripts' own."""
_UNPREFIXED = ("JMX_PORT", "LOG4J_", "CONFLUENT_", "BITNAMI_", "EXTRA_ARGS", "JAVA_TOOL_OPTIONS", "CUB_")


@dataclass(slots=True)
class ImageSettings:
    """What an environment says."""

    image: Image
    settings: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    file: Path | None = None
    """The mounted server.properties behind the environment."""
    scram_users: tuple[tuple[str, User], ...] = ()
    """(mechanism, user) of those that a first start makes."""


def image_settings(
    environ: Mapping[str, str],
    *,
    root: Path = Path("/"),
    mounts: Collection[PurePosixPath] | None = None,
    host_name: str = "",
) -> ImageSettings:
    """The settings of an environment.  ImageError, where it asks for protection that cannot be had, or for a file that
    is not there.  `root`, `mounts` and `host_name` stand for the container's own."""
    host_name = host_name or environ.get("HOSTNAME", "") or socket.gethostname()
    found = ImageSettings(image_of(environ))
    found.file = next((path for each in MOUNTED_SETTINGS if (path := root / each.relative_to("/")).is_file()), None)
    names = [name for name, value in environ.items() if is_of_an_image(name, value)]
    meaningless = [name for name in (*names, *_without_prefix(environ)) if why_meaningless(name)]
    taken = {name: _given(found, name, environ[name]) for name in sorted(names) if name not in meaningless}
    _take_plain(found, taken)
    below = {} if found.file is None else _below(found.file)
    if found.file is None:
        for key, text in BASE.get(found.image, {}).items():
            found.settings.setdefault(key, Given(text, _OF_THE_IMAGE))
        complete_listeners(found.settings, found.image, host_name)
        home = environ.get(HOME_VARIABLE, "")
        places = mounts_here() if mounts is None else mounts
        _place_data(found, host_name, places, PurePosixPath(home) if home else None)
    else:
        # Nothing is filled in: what the environment leaves out is in the file, whose listeners count for security.
        found.settings = {**below, **found.settings}
    _take_security(found, taken, root)
    _take_level(found, environ, meaningless)
    _without_reporters(found)
    _check_plaintext(found, environ)
    _check_unknown(found, taken)
    _check_controllers(found, taken)
    found.settings = {key: given for key, given in found.settings.items() if below.get(key) is not given}
    if meaningless:
        found.warnings.append(line_about(meaningless))
    return found


def _without_prefix(environ: Mapping[str, str]) -> Iterable[str]:
    return (name for name in environ if name.startswith(_UNPREFIXED))


def _given(found: ImageSettings, name: str, value: str) -> Given:
    """A variable's value, which what becomes a setting has from the image's file.  ImageError.

    Lines of their own in that file are settings where their names are, and are named by their numbers otherwise: they
    may be parts of a password."""
    origin = f"environment {name}"
    if name in _NOT_WRITTEN:
        return Given(value.rstrip("\r\n"), origin)
    try:
        made = written(value)
    except PropertiesError as error:
        raise ImageError(f"{origin}: {error}") from None
    unknown: list[str] = []
    for line, key, text in made.lines:
        if judge(key, text).verdict is Verdict.UNKNOWN:
            unknown.append(str(line))
        else:
            _take(found, key, Given(text, f"{origin} line {line}"))
    if unknown:
        found.warnings.append(
            f"{origin} line {', '.join(unknown)}: no part of the value, but a line of its own in the server.properties "
            f"that the image writes, and no setting there; where a value goes on in the next line, a backslash ends "
            "the line"
        )
    if made.takes_next:
        found.warnings.append(
            f"{origin} ends in a backslash, which would take the next line of the server.properties that the image "
            "writes into the value; here it takes nothing"
        )
    return Given(made.text, origin)


def _take(found: ImageSettings, key: str, given: Given) -> None:
    """ImageError where something else is said of a setting already."""
    other = found.settings.get(key)
    if other is not None and other.text != given.text:
        raise ImageError(f"{other.origin} and {given.origin} say different things of {key}")
    found.settings[key] = given


def _take_plain(found: ImageSettings, taken: Mapping[str, Given]) -> None:
    """The variables that are settings by their names.  ImageError where two say different things of one."""
    for name, given in taken.items():
        if name not in _NOT_WRITTEN and not is_of_a_store(name) and not name.startswith("KAFKA_ZOOKEEPER_TLS_"):
            _take(found, setting_of(name), given)
    roles = found.settings.get("process.roles")
    if roles is not None and not roles.text.strip():
        del found.settings["process.roles"]


def _place_data(
    found: ImageSettings, host_name: str, mounts: Collection[PurePosixPath], home: PurePosixPath | None
) -> None:
    if "log.dirs" in found.settings or "log.dir" in found.settings:
        return
    directory = data_directory(found.image, host_name, mounts, home)
    if directory is not None:
        found.settings["log.dirs"] = Given(str(directory), _OF_THE_IMAGE)


def _below(path: Path) -> dict[str, Given]:
    """The settings of a mounted file; none of one that the start refuses."""
    try:
        properties = list(parse_properties(decode_properties(path.read_bytes())))
    except (OSError, PropertiesError):
        return {}
    return {each.key: Given(each.value, f"{path} line {each.line}") for each in properties}


def _take_security(found: ImageSettings, taken: Mapping[str, Given], root: Path) -> None:
    settings = found.settings
    take_stores(settings, taken, root)
    options = taken.get(_OPTIONS)
    path = None if options is None else login_file(options.text)
    if found.image is Image.BITNAMI:
        take_bitnamis_stores(settings, taken, root)
        if path is None:
            mounted = (each / "kafka_jaas.conf" for each in BITNAMI_CONFIG)
            path = next((each for each in mounted if (root / each.relative_to("/")).is_file()), None)
            options = options or Given("", str(path))
        _take_bitnamis_users(found, taken, has_file=path is not None)
    if path is not None and options is not None:
        take_login_file(settings, options, path, root)
    elif options is not None and options.text.strip():
        found.warnings.append(f"variables that mean nothing here: {_OPTIONS} (there is no Java machine to set up)")
    _take_zookeeper_login(found, taken)


def _take_bitnamis_users(found: ImageSettings, taken: Mapping[str, Given], *, has_file: bool) -> None:
    """bitnami's users, above those of a login file.  ImageError."""
    users = BitnamiUsers.read(taken)
    if has_file and not users.all:
        return
    found.scram_users = take_users(found.settings, users)
    if found.scram_users and found.settings.get("zookeeper.connect", Given("", "")).text.strip():
        raise ImageError(
            "environment KAFKA_CLIENT_USERS: users of SCRAM are ZooKeeper's in a cluster with ZooKeeper: make them "
            "there with kafka-configs or kbroker users, and leave the variable out, or take PLAIN alone "
            "(KAFKA_CFG_SASL_ENABLED_MECHANISMS=PLAIN)"
        )


def _take_zookeeper_login(found: ImageSettings, taken: Mapping[str, Given]) -> None:
    """bitnami's login at ZooKeeper."""
    protocol = taken.get("KAFKA_ZOOKEEPER_PROTOCOL", Given("PLAINTEXT", "environment KAFKA_ZOOKEEPER_PROTOCOL"))
    tls = [f"environment {name}" for name in sorted(taken) if name.startswith("KAFKA_ZOOKEEPER_TLS_")]
    if tls or protocol.text.upper() not in ("PLAINTEXT", "SASL"):
        raise ImageError(
            f"{tls[0] if tls else protocol.origin}: TLS to ZooKeeper is set up by "
            "KAFKA_CFG_ZOOKEEPER_SSL_CLIENT_ENABLE and zookeeper.ssl.keystore.location, …: KAFKA_ZOOKEEPER_TLS_… "
            "variables are not read"
        )
    if protocol.text.upper() == "SASL":
        for name, key in (("KAFKA_ZOOKEEPER_USER", "username"), ("KAFKA_ZOOKEEPER_PASSWORD", "password")):
            if name not in taken:
                raise ImageError(f"{protocol.origin} takes {name}")
            found.settings.setdefault(f"kbroker.zookeeper.sasl.{key}", taken[name])
    elif unused := sorted({"KAFKA_ZOOKEEPER_USER", "KAFKA_ZOOKEEPER_PASSWORD"} & taken.keys()):
        raise ImageError(f"environment {', '.join(unused)}: a login at ZooKeeper takes KAFKA_ZOOKEEPER_PROTOCOL=SASL")


def _take_level(found: ImageSettings, environ: Mapping[str, str], meaningless: list[str]) -> None:
    """The level of the root logger is the one variable about log lines that has a meaning here."""
    level = _LEVELS.get(environ.get(_ROOT_LEVEL, "").partition(",")[0].strip().upper())
    if level is not None:
        meaningless.remove(_ROOT_LEVEL)
        found.settings.setdefault("kbroker.log.level", Given(level, f"environment {_ROOT_LEVEL}"))


def _without_reporters(found: ImageSettings) -> None:
    given = found.settings.get(REPORTERS)
    if given is None:
        return
    left = without_confluents(given.text)
    if left != ",".join(split(given.text)):
        found.warnings.append(f"{given.origin}: Confluent's reporters are left out, they are no part of kbroker")
        found.settings[REPORTERS] = given._replace(text=left)
    if not left:
        del found.settings[REPORTERS]


def _check_plaintext(found: ImageSettings, environ: Mapping[str, str]) -> None:
    allowed = environ.get("ALLOW_PLAINTEXT_LISTENER", "").strip().lower()
    plain = [each.name for each in client_listeners(found.settings) if each.protocol == "PLAINTEXT"]
    if allowed in _NO and plain:
        raise ImageError(
            f"environment ALLOW_PLAINTEXT_LISTENER={allowed}, and listener {plain[0]} has neither TLS nor SASL"
        )


def _check_unknown(found: ImageSettings, taken: Mapping[str, Given]) -> None:
    """ImageError for a variable about protection that no setting is behind, where no listener has such protection.

    Where one has, Kafka would ignore the variable as well, and the start names it."""
    protocols = {each.protocol for each in client_listeners(found.settings)}
    for name, given in sorted(taken.items()):
        key = setting_of(name)
        if found.settings.get(key) is not given or judge(key, given.text).verdict is not Verdict.UNKNOWN:
            continue
        if not asks_for_protection(name) or given.text.strip().lower() in ("", *_NO):
            continue
        wanted = given.text.strip().upper() if key == "security.protocol" else ""
        if wanted == "PLAINTEXT" or (wanted and wanted in protocols):
            continue
        covered = any(
            part in key and any(part.upper() in each for each in protocols) for part in ("sasl", "ssl") if not wanted
        )
        if not covered:
            raise ImageError(
                f"{given.origin} asks for protection, and kbroker knows no setting {key}; it refuses to start "
                "unprotected, remove the variable to go on without"
            )


def _check_controllers(found: ImageSettings, taken: Mapping[str, Given]) -> None:
    """Name what is about ZooKeeper and controllers where there is neither.  ImageError where there is."""
    roles = split(found.settings.get("process.roles", Given("", "")).text)
    users = sorted(name for name in taken if name in _OF_CONTROLLERS)
    if users and roles in (["broker"], ["controller"]):
        raise ImageError(
            f"environment {', '.join(users)}: how the {roles[0]} logs in at its controllers is "
            "KAFKA_CFG_LISTENER_NAME_<LISTENER>_<MECHANISM>_SASL_JAAS_CONFIG, as in a server.properties"
        )
    if users:
        found.warnings.append(
            f"environment {', '.join(users)} means nothing here: there is no listener of a controller"
        )
    if "controller" in roles and found.settings.get("zookeeper.connect", Given("", "")).text.strip():
        origin = found.settings["zookeeper.connect"].origin
        found.settings["zookeeper.connect"] = Given("", origin)
        found.warnings.append(f"{origin} has no effect: with process.roles there is no ZooKeeper")
