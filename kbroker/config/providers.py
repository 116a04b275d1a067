"""Values of settings that lie elsewhere (`config.providers`, KIP-297, KIP-421): `${provider:path:key}`.

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    ssl.keystore.password=${file:/etc/kbroker/secrets.properties:keystore.password}

Kafka's own providers are known by their Java classes:

    FileConfigProvider       path: a .properties file, key: a name in it; param.allowed.paths
    DirectoryConfigProvider  path: a directory, key: a file in it, whose content is the value; param.allowed.paths
    EnvVarConfigProvider     no path; key: a variable of the environment; param.allowlist.pattern, which is Java's

A value that cannot be had is an error: in Kafka the text `${…}` itself would become the password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker.config.properties import PropertiesError, decode_properties, parse_properties
from kbroker.java_patterns import JavaPattern, JavaPatternError, PatternTimeoutError, compile_java_pattern

PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")


class ProviderError(ValueError):
    """A provider that is not known, or a value that it does not have.  The text has no value."""


class Reference(NamedTuple):
    """What stands in `${…}`."""

    provider: str
    path: str
    key: str


_Look = Callable[[Reference], str]


def is_of_a_provider(key: str) -> bool:
    """Whether a setting describes a provider."""
    return key.startswith(f"{PROVIDERS}.")


class Providers:
    """The providers that settings name."""

    def __init__(self, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._environ = environ
        names = [name.strip() for name in settings.get(PROVIDERS, "").split(",") if name.strip()]
        self._looks = {name: self._provider(name, settings) for name in names}

    def resolved(self, text: str) -> str:
        """The text with the values in the places of their references.  ProviderError.

        What names no provider stays as it is: a dollar sign may be part of a value.
        """
        if "${" not in text or not self._looks:
            return text
        return _REFERENCE.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        reference = Reference(match[1].strip(), (match[2] or "").strip(), match[3].strip())
        look = self._looks.get(reference.provider)
        return match[0] if look is None else look(reference)

    def _provider(self, name: str, settings: Mapping[str, str]) -> _Look:
        key = f"{PROVIDERS}.{name}.class"
        kind = settings.get(key, "").strip()
        given = {each: text for each, text in settings.items() if each.startswith(f"{PROVIDERS}.{name}.param.")}
        allowed = given.pop(f"{PROVIDERS}.{name}.param.allowed.paths", None)
        pattern = given.pop(f"{PROVIDERS}.{name}.param.allowlist.pattern", None)
        if given:
            raise ProviderError(f"{min(given)} is no parameter of Kafka's providers")
        paths = None if not allowed else [Path(each.strip()).resolve() for each in allowed.split(",")]
        match kind.removeprefix(_PACKAGE):
            case "FileConfigProvider":
                return lambda reference: _of_file(reference, paths)
            case "DirectoryConfigProvider":
                return lambda reference: _of_directory(reference, paths)
            case "EnvVarConfigProvider":
                allowed_names = None if pattern is None else _compiled(key, pattern)
                return lambda reference: self._of_environment(reference, allowed_names)
        raise ProviderError(
            f"{key}={kind}: kbroker runs no Java; it has Kafka's FileConfigProvider, DirectoryConfigProvider and "
            "EnvVarConfigProvider"
        )

    def _of_environment(self, reference: Reference, allowed: JavaPattern | None) -> str:
        try:
            is_allowed = allowed is None or allowed.fullmatch(reference.key) is not None
        except PatternTimeoutError as error:
            raise ProviderError(str(error)) from None
        if not is_allowed:
            raise ProviderError(f"the variable {reference.key} does not match the allowlist.pattern of its provider")
        value = self._environ.get(reference.key)
        if value is None:
            raise ProviderError(f"there is no variable {reference.key} in the environment")
        return value


def _check_allowed(path: Path, allowed: Iterable[Path] | None) -> None:
    if allowed is not None and not any(path.resolve().is_relative_to(each) for each in allowed):
        raise ProviderError(f"{path} is not below the allowed.paths of its provider")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{path} cannot be read: {error.strerror}") from None


def _compiled(key: str, pattern: str) -> JavaPattern:
    try:
        return compile_java_pattern(pattern)
    except JavaPatternError as error:
        raise ProviderError(f"{key.removesuffix('class')}param.allowlist.pattern: {error}") from None


def _of_file(reference: Reference, allowed: Iterable[Path] | None) -> str:
    path = Path(reference.path)
    _check_allowed(path, allowed)
    try:
        values = {each.key: each.value for each in parse_properties(decode_properties(_read(path)))}
    except PropertiesError:
        raise ProviderError(f"{path} is no .properties file") from None
    if reference.key not in values:
        raise ProviderError(f"{path} has no {reference.key}")
    return values[reference.key]


def _of_directory(reference: Reference, allowed: Iterable[Path] | None) -> str:
    if "/" in reference.key or reference.key in ("", ".", ".."):
        raise ProviderError(f"{reference.key!r} is no name of a file in {reference.path}")
    path = Path(reference.path) / reference.key
    _check_allowed(path, allowed)
    try:
        return _read(path).decode()
    except UnicodeDecodeError:
        raise ProviderError(f"{path} is no text in UTF-8") from None
