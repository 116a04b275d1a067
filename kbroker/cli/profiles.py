"""Profiles: clusters by name, with the settings that their clients need.

They lie in `$XDG_CONFIG_HOME/kbroker/profiles.ini` (`~/.config/kbroker/profiles.ini`). Only its owner reads it, as
settings of clients may be passwords:

    [current]
    profile = staging

    [profile staging]
    bootstrap.servers = staging-1:9092,staging-2:9092
    metrics = http://staging-1:9644
    client.security.protocol = SASL_SSL

Which one a command takes: `--profile`, then KBROKER_PROFILE, then the current one.  A command with an address but
without `--profile` takes no profile, so that the settings of one cluster are never used with another.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbroker.nearest import did_you_mean

VARIABLE = "KBROKER_PROFILE"
_SECTION, _CURRENT, _CLIENT = "profile ", "current", "client."


class ProfileError(Exception):
    """A file that cannot be read, or a profile that is not in it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster; `metrics`: the URL of a broker's metrics.listener, `settings`: of clients, librdkafka's names."""

    name: str
    bootstrap: str
    metrics: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class Profiles:
    """The file, read at once and written by each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Names of settings keep their case, and % is a character as any.
        self._file = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
        self._file.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            with path.open(encoding="utf-8") as lines:
                self._file.read_file(lines)
        except FileNotFoundError:
            pass
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ProfileError(f"{path}: {str(error).splitlines()[0]}") from None

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        return self._path

    @property
    def names(self) -> list[str]:
        """All profiles, sorted."""
        return sorted(each.removeprefix(_SECTION) for each in self._file.sections() if each.startswith(_SECTION))

    @property
    def current(self) -> str | None:
        """The one that commands take when none is named."""
        return self._file.get(_CURRENT, "profile", fallback=None) or None

    def get(self, name: str) -> Profile:
        """ProfileError when there is none of this name."""
        if not self._file.has_section(_SECTION + name):
            hint = did_you_mean(name, self.names) or f"; {self._path} has {', '.join(self.names) or 'none'}"
            raise ProfileError(f"there is no profile {name}{hint}")
        values = dict(self._file.items(_SECTION + name))
        bootstrap = values.get("bootstrap.servers")
        if not bootstrap:
            raise ProfileError(f"{self._path}: profile {name} has no bootstrap.servers")
        settings = {key.removeprefix(_CLIENT): text for key, text in values.items() if key.startswith(_CLIENT)}
        return Profile(name, bootstrap, values.get("metrics") or None, settings)

    def put(self, profile: Profile) -> None:
        """Adds a profile, or replaces the one of this name."""
        values = {"bootstrap.servers": profile.bootstrap}
        if profile.metrics is not None:
            values["metrics"] = profile.metrics
        values |= {_CLIENT + key: text for key, text in profile.settings.items()}
        for text in (profile.name, *values, *values.values()):
            if "\n" in text or "\r" in text or text != text.strip():
                raise ProfileError(f"{text!r} has a line break, or a space at an end, which a profile cannot hold")
        if not profile.name or "]" in profile.name:
            raise ProfileError(f"{profile.name!r} is no name of a profile")
        self._file.remove_section(_SECTION + profile.name)
        self._file.add_section(_SECTION + profile.name)
        for key, text in values.items():
            self._file.set(_SECTION + profile.name, key, text)
        self._write()

    def remove(self, name: str) -> None:
        """ProfileError when there is none of this name."""
        self.get(name)
        self._file.remove_section(_SECTION + name)
        if self.current == name:
            self._file.remove_section(_CURRENT)
        self._write()

    def use(self, name: str | None) -> None:
        """Makes a profile the current one; None: none is."""
        self._file.remove_section(_CURRENT)
        if name is not None:
            self.get(name)
            self._file.add_section(_CURRENT)
            self._file.set(_CURRENT, "profile", name)
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._path.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            self._file.write(out)
        temporary.replace(self._path)


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the XDG Base Directory Specification puts it."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "kbroker" / "profiles.ini"
