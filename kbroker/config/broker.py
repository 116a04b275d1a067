"""The broker's settings: where each comes from, and their checks.

Precedence, best first: `--override key=value`, environment (`KBROKER_LOG_SEGMENT_BYTES` is log.segment.bytes; a key
that starts with `kbroker.` does not repeat the prefix; in keys of single listeners and of providers `__` stands for
`_` and `___` for `-`, as in Kafka's images), server.properties, default.  An unknown key, or one that
kbroker does not act on, gives a warning in `BrokerConfig.warnings`.  A bad value is a `ConfigError`, and so is a
setting that would protect something but is not implemented.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from kbroker.config.images.names import HOME_VARIABLE, SWITCH, ImageError, key_of, obeys
from kbroker.config.images.unread import UnprotectedError, unread_variables
from kbroker.config.judgement import LISTENER_PREFIX, find_row, judge
from kbroker.config.listener import (
    EVERY_HOST,
    Listener,
    ListenerError,
    check_ports,
    parse_listeners,
    parse_protocol_map,
)
from kbroker.config.place_in_cluster import (
    names_a_quorum,
    names_another_voter,
    origins_of_surprise,
    wrong_controller_listeners,
    wrong_place,
)
from kbroker.config.providers import PROVIDERS, ProviderError, Providers, is_of_a_provider
from kbroker.config.table import BROKER_TABLE
from kbroker.config.together import contradiction
from kbroker.nearest import MISSPELT, did_you_mean

if TYPE_CHECKING:
    from kbroker.config.setting_names import (
        BoolSetting,
        FloatSetting,
        IntSetting,
        ListSetting,
        OptionalIntSetting,
        OptionalListSetting,
        OptionalStrSetting,
        StrSetting,
    )

ENVIRONMENT_PREFIX = "KBROKER_"
_OTHER_VARIABLES = frozenset({HOME_VARIABLE, SWITCH, "KBROKER_BUILD", "KBROKER_EXT", "KBROKER_PROFILE"})
WINDOWS_PATH = re.compile(r"[A-Za-z]:|\\\\")
_OTHER_PREFIXES = ("KBROKER_TEST_", "KBROKER_BENCH_")


class Source(StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OVERRIDE = "override"


class Setting(NamedTuple):
    """A value that was set, as text, and where."""

    key: str
    text: str
    source: Source
    origin: str

    def __repr__(self) -> str:
        """Without the value, which may be a password."""
        return f"Setting({self.key}, {self.origin})"


class ConfigError(Exception):
    """Settings that kbroker refuses to start with.  The message names the key, its value and what is allowed."""

    def __init__(self, message: str, setting: Setting | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class BrokerConfig:
    """The settings of one broker.  Read-only once made."""

    __slots__ = (
        "_dynamic",
        "_of_listeners",
        "_settings",
        "_static",
        "_values",
        "advertised_controllers",
        "advertised_listeners",
        "controller_listener",
        "controller_listeners",
        "listeners",
        "log_dirs",
        "warnings",
    )

    def __init__(self, settings: Sequence[Setting], environ: Mapping[str, str], warnings: Sequence[str] = ()) -> None:
        """Applies `settings` in order, later ones over earlier ones."""
        self.warnings: list[str] = list(warnings)
        self._settings: dict[str, Setting] = {setting.key: setting for setting in settings}
        self._values: dict[str, Any] = {}
        self._of_listeners: dict[tuple[str, str], object] = {}
        self._static = self._values
        self._dynamic: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {})
        texts = {key: setting.text for key, setting in self._settings.items()}
        try:
            providers = Providers(texts, environ)
        except ProviderError as error:
            raise ConfigError(str(error), self._settings.get(PROVIDERS)) from None
        resolved = {
            key: _resolved(each, providers) for key, each in self._settings.items() if not is_of_a_provider(key)
        }
        for setting in resolved.values():
            self._apply(setting, texts)
        self.controller_listener: tuple[str, str] | None = None
        """Name and security protocol of the listener by which a KRaft cluster's controllers are reached."""
        self.controller_listeners: list[Listener] = []
        """Those of a voter for other voters and brokers; of a node that is no broker, all of `listeners`."""
        self.advertised_controllers: list[Listener] = []
        """Where others reach those, as far as `advertised.listeners` says."""
        self.listeners, self.advertised_listeners = self._read_listeners()
        self.log_dirs: list[str] = self._read_log_dirs(environ)
        self._check_together()
        self.warnings += origins_of_surprise(resolved, self.listeners)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None,
        overrides: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """The settings of a server.properties, the environment and `key=value` overrides.  Raises `ConfigError`."""
        environment = os.environ if environ is None else environ
        settings, warnings = read_settings(path, overrides, environment)
        return cls(settings, environment, warnings)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> BrokerConfig:
        """Settings from a mapping, as if a file held them; values may be typed or text."""
        from kbroker.config.value import render_value

        return cls(
            [Setting(key, render_value(value) or "", Source.FILE, "given") for key, value in values.items()], os.environ
        )

    @overload
    def get(self, key: BoolSetting) -> bool: ...
    @overload
    def get(self, key: FloatSetting) -> float: ...
    @overload
    def get(self, key: IntSetting) -> int: ...
    @overload
    def get(self, key: OptionalIntSetting) -> int | None: ...
    @overload
    def get(self, key: StrSetting) -> str: ...
    @overload
    def get(self, key: OptionalStrSetting) -> str | None: ...
    @overload
    def get(self, key: ListSetting) -> list[str]: ...
    @overload
    def get(self, key: OptionalListSetting) -> list[str] | None: ...
    def get(self, key: str) -> object:
        """The typed value of a broker setting; its default when it was not set.  KeyError for an unknown name."""
        return self.value_of(key)

    def value_of(self, key: str) -> Any:
        """As `get`, for a name that is worked out: the value's type is the caller's business."""
        try:
            return self._values[key]
        except KeyError:
            return BROKER_TABLE[key].default

    def for_listener(self, listener: str, key: str) -> object:
        """A setting as it is for a listener: `listener.name.<listener>.<key>`, else the broker's own.  KeyError."""
        return self.own_of_listener(listener, key, self.value_of(key))

    def for_mechanism(self, listener: str, mechanism: str, key: str) -> object:
        """The same for a SASL mechanism of a listener: `listener.name.<listener>.<mechanism>.<key>` is best."""
        return self.own_of_listener(listener, f"{mechanism.lower()}.{key}", self.for_listener(listener, key))

    def own_of_listener(self, listener: str, key: str, default: object = None) -> Any:
        """What was set for a single listener, as `listener.name.<listener>.<key>`; `default` where nothing was."""
        return self._of_listeners.get((listener.lower(), key), default)

    @property
    def explicit(self) -> frozenset[str]:
        """The known settings that were set at start."""
        return frozenset(self._static)

    def with_dynamic(self, for_all: Mapping[str, object], own: Mapping[str, object]) -> BrokerConfig:
        """These settings under those that were changed at run time, for all brokers and, better, for this one."""
        changed = copy.copy(self)
        changed._dynamic = (own, for_all)
        changed._values = {**self._static}
        changed._of_listeners = {**self._of_listeners}
        for key, value in (*for_all.items(), *own.items()):
            row, listener, mechanism = find_row(key)
            if row is not None and listener is not None:
                changed._of_listeners[listener, f"{mechanism}.{row.name}" if mechanism else row.name] = value
            else:
                changed._values[key] = value
        return changed

    def levels(self) -> tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]]:
        """What was set, best first: at run time for this broker, at run time for all of them, at start."""
        return *self._dynamic, self._static

    def source_of(self, key: str) -> Source:
        """Where a setting's value comes from."""
        setting = self._settings.get(key)
        return Source.DEFAULT if setting is None else setting.source

    def origin_of(self, key: str) -> str:
        """For people: `default`, `environment KBROKER_X`, `--override` or the file and line."""
        setting = self._settings.get(key)
        return str(Source.DEFAULT) if setting is None else setting.origin

    @property
    def is_kraft_broker(self) -> bool:
        """Whether the node is a broker of a KRaft cluster whose controllers are other nodes."""
        return bool(self.get("process.roles") == ["broker"])

    @property
    def every_listener(self) -> list[Listener]:
        """The listeners of all roles of the node."""
        return [*self.listeners, *(each for each in self.controller_listeners if each not in self.listeners)]

    @property
    def is_controller_alone(self) -> bool:
        """Whether the node has the controller role, and is no broker."""
        return set(self.get("process.roles")) == {"controller"}

    @property
    def is_voter(self) -> bool:
        """Whether the node has the controller role, and settings name its quorum."""
        if "process.roles" not in self._static or "controller" not in self.get("process.roles"):
            return False
        return self.is_controller_alone or names_a_quorum(self.value_of)

    @property
    def shown_controllers(self) -> list[Listener]:
        """The listeners of a voter for other voters and brokers, as others reach them."""
        advertised = {each.name: each for each in self.advertised_controllers}
        return [advertised.get(each.name, each) for each in self.controller_listeners]

    @property
    def is_quorum_of_one(self) -> bool:
        """Whether the node is a broker and the one controller that settings name."""
        if not self.is_voter or self.is_controller_alone:
            return False
        own = [*self.controller_listeners, *self.advertised_controllers]
        return not names_another_voter(self.value_of, self.node_id, own)

    @property
    def node_id(self) -> int:
        """`node.id`, else `broker.id`, its older name, else the default."""
        if "node.id" not in self._values and self._values.get("broker.id", -1) >= 0:
            return int(self._values["broker.id"])
        return int(self.get("node.id"))

    def take_node_id(self, node_id: int) -> None:
        """Be the node of that id, which the cluster or the log directories gave it, as no setting did."""
        self._static["node.id"] = node_id
        self._values = {**self._values, "node.id": node_id} if self._values is not self._static else self._static

    def _apply(self, setting: Setting, texts: Mapping[str, str]) -> None:
        judged = judge(setting.key, setting.text, texts)
        if judged.verdict.stops:
            raise _refuse(setting, judged.why)
        if judged.why:
            self.warnings.append(f"{setting.key} ({setting.origin}) {judged.why}")
        if judged.row is None:
            return
        if judged.listener is None:
            self._values[judged.row.name] = judged.value
        elif judged.is_of_listener:
            key = f"{judged.mechanism}.{judged.row.name}" if judged.mechanism else judged.row.name
            self._of_listeners[judged.listener, key] = judged.value

    def _fail(self, key: str, reason: str) -> ConfigError:
        setting = self._settings.get(key) or Setting(key, str(self.value_of(key)), Source.DEFAULT, str(Source.DEFAULT))
        return _refuse(setting, f"Invalid value {setting.text} for configuration {key}: {reason}")

    def _read_listeners(self) -> tuple[list[Listener], list[Listener]]:
        key = "listener.security.protocol.map"
        try:
            protocols = parse_protocol_map(self.value_of(key))
            controllers = [name.upper() for name in self.get("controller.listener.names")]
            for name in controllers:
                protocols.setdefault(name, "PLAINTEXT")
            self.controller_listener = (controllers[0], protocols[controllers[0]]) if controllers else None
            key = "listeners"
            every = parse_listeners(self.value_of(key), protocols)
            if self.is_kraft_broker and any(each.name in controllers for each in every):
                raise ListenerError(
                    "controller.listener.names must not contain a value appearing in the 'listeners' configuration "
                    "when running KRaft with just the broker role"
                )
            listeners = self._of_roles(every, controllers)
            check_ports([*listeners, *(each for each in self.controller_listeners if each not in listeners)])
            key = "advertised.listeners"
            names = {each.name for each in listeners}
            shown = parse_listeners(self.value_of(key) or [], protocols)
            advertised = [
                each
                for each in shown
                if each.name in names or (each.name not in controllers and not self.is_controller_alone)
            ]
            self._check_advertised(advertised, names)
            if self.is_voter:
                self.advertised_controllers = [each for each in shown if each.name in controllers]
        except ListenerError as error:
            raise self._fail(key, str(error)) from None
        if controllers and not self.is_kraft_broker and not self.is_voter:
            self.warnings.append("controller.listener.names: kbroker needs no controller listener and opens none")
        return listeners, advertised

    def _of_roles(self, every: list[Listener], controllers: Sequence[str]) -> list[Listener]:
        """The listeners for clients, or a controller's where it is no broker."""
        if self.is_voter:
            wrong = wrong_controller_listeners(self.get("process.roles"), controllers, [each.name for each in every])
            if wrong is not None:
                raise self._fail(*wrong)
            self.controller_listeners = [each for each in every if each.name in controllers]
        if self.is_controller_alone:
            return every
        listeners = [each for each in every if each.name not in controllers]
        if not listeners:
            raise ListenerError("at least one listener for clients is needed")
        return listeners

    @staticmethod
    def _check_advertised(advertised: list[Listener], names: set[str]) -> None:
        for listener in advertised:
            if listener.name not in names:
                raise ListenerError(f"listener {listener.name} is not in listeners")
            if listener.host in EVERY_HOST:
                raise ListenerError(f"{listener}: clients cannot connect to every interface, name one host")

    def _read_log_dirs(self, environ: Mapping[str, str]) -> list[str]:
        names = self.get("log.dirs") or self.get("log.dir") or [str(default_home(environ) / "data")]
        # The working directory may change later (a daemon's does): keep where it was meant.
        for name in names:
            if WINDOWS_PATH.match(name):
                key = "log.dirs" if self.get("log.dirs") else "log.dir"
                raise self._fail(key, f"{name} is a path of Windows, and would be a directory of that name here")
        return [str(Path(name).absolute()) for name in names]

    def _check_together(self) -> None:
        bound, largest = self.get("queued.max.request.bytes"), self.get("socket.request.max.bytes")
        if 0 < bound < largest:
            raise self._fail("queued.max.request.bytes", f"Value must be at least socket.request.max.bytes ({largest})")
        shortest, longest = self.get("group.min.session.timeout.ms"), self.get("group.max.session.timeout.ms")
        if shortest > longest:
            raise self._fail(
                "group.min.session.timeout.ms", f"Value must be no more than group.max.session.timeout.ms ({longest})"
            )
        if not 0 <= self.get("offsets.topic.compression.codec") <= 4:
            raise self._fail("offsets.topic.compression.codec", "Value must be between 0 and 4")
        wrong = contradiction(self.value_of) or self._wrong_place()
        if wrong is not None:
            raise self._fail(*wrong)
        for key in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
            if self.value_of(key) < 1 and self.value_of(key) != -1:
                raise self._fail(key, "Value must be at least 1, or -1 for the system's default")

    def _wrong_place(self) -> tuple[str, str] | None:
        # A listener without an advertised address answers with the address that the client dialled. A member of a
        # cluster needs an advertised one, as other brokers know no other address (`assembly.membership.settings`).
        names = [each.name for each in self.listeners]
        key = "security.inter.broker.protocol"
        is_broker = not self.is_controller_alone
        if is_broker and key in self._static and all(each.protocol != self.value_of(key) for each in self.listeners):
            return key, f"no listener has {self.value_of(key)}"
        return wrong_place(self.value_of, self._static.keys(), self.node_id, names)


def read_settings(
    path: str | os.PathLike[str] | None, overrides: Sequence[str], environ: Mapping[str, str]
) -> tuple[list[Setting], list[str]]:
    """What a server.properties, the environment and overrides set, later ones over earlier ones, and warnings.

    ConfigError where they cannot be read.
    """
    warnings: list[str] = []
    settings: list[Setting] = []
    try:
        if obeys(environ):
            from kbroker.config.images.settings import image_settings  # Much code, for containers alone.
        taken = image_settings(environ) if obeys(environ) else None
        warnings.extend(unread_variables(environ) if taken is None else taken.warnings)
    except (UnprotectedError, ImageError) as error:
        raise ConfigError(str(error)) from None
    if taken is not None:
        path = path or taken.file
    if path is not None:
        settings.extend(_read_file(Path(path), warnings))
    if taken is not None:
        settings.extend(
            Setting(key, given.text, Source.ENVIRONMENT, given.origin) for key, given in taken.settings.items()
        )
    settings.extend(_read_environment(environ, warnings))
    settings.extend(_read_overrides(overrides))
    return settings, warnings


def default_home(environ: Mapping[str, str]) -> Path:
    """Where a broker without `log.dirs` keeps its data: `$KBROKER_HOME`, else a directory that survives reboots."""
    home = environ.get(HOME_VARIABLE)
    if home:
        return Path(home)
    data = environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path(environ.get("HOME", "/var/lib")) / ".local" / "share") / "kbroker"


def environment_name(key: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + key.removeprefix("kbroker.").replace(".", "_").upper()


def _resolved(setting: Setting, providers: Providers) -> Setting:
    """With the values of providers in the places of their references.  ConfigError where there is none."""
    try:
        return setting._replace(text=providers.resolved(setting.text))
    except ProviderError as error:
        raise _refuse(setting, f"{setting.key}: {error}") from None


def _refuse(setting: Setting, reason: str) -> ConfigError:
    return ConfigError(f"{reason} ({setting.origin})", setting)


def _read_file(path: Path, warnings: list[str]) -> Iterator[Setting]:
    from kbroker.config.properties import PropertiesError, decode_properties, parse_properties

    try:
        text = decode_properties(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    seen: dict[str, int] = {}
    try:
        for line, key, value in parse_properties(text):
            if key in seen:
                warnings.append(f"{key} is set twice in {path}, on lines {seen[key]} and {line}: the last one counts")
            seen[key] = line
            yield Setting(key, value, Source.FILE, f"{path} line {line}")
    except PropertiesError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_environment(environ: Mapping[str, str], warnings: list[str]) -> Iterator[Setting]:
    names = sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX))
    names = [name for name in names if name not in _OTHER_VARIABLES and not name.startswith(_OTHER_PREFIXES)]
    if not names:
        return
    known = {environment_name(key): key for key in BROKER_TABLE}
    for name in names:
        key = known.get(name)
        if key is not None:
            yield Setting(key, environ[name], Source.ENVIRONMENT, f"environment {name}")
            continue
        key = key_of(name.removeprefix(ENVIRONMENT_PREFIX))
        if is_of_a_provider(key) or (key.startswith(LISTENER_PREFIX) and find_row(key)[0] is not None):
            yield Setting(key, environ[name], Source.ENVIRONMENT, f"environment {name}")
            continue
        warnings.append(
            f"environment {name} is not a known setting and is ignored{did_you_mean(name, known, MISSPELT)}"
        )


def _read_overrides(overrides: Sequence[str]) -> Iterator[Setting]:
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--override {override}: must be key=value")
        yield Setting(key.strip(), value, Source.OVERRIDE, "--override")
