"""What `kbroker doctor` looks at: settings, directories, ports, limits, clock.  Each check is a function that gives
findings; none changes anything.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from kbroker import __version__
from kbroker.config import EVERY_HOST, BrokerConfig
from kbroker.metrics.listener_address import parse_listener
from kbroker.network.ports_in_use import why_not_bound
from kbroker.storage.directories.access import access_refused, refused_below

RESERVE: Final = "kbroker.disk.reserve.bytes"
RUNNING = "running broker"
FEW_DESCRIPTORS = 4096
FEW_MAPS = 65_530
VOLATILE = frozenset({"tmpfs", "ramfs", "overlay"})
_LOOPBACK = ("127.", "::1", "localhost")
# struct timex of adjtimex(2), whose status has this bit while the clock follows no source.
_TIMEX_BYTES, _STATUS_AT, _STA_UNSYNC = 256, 40, 0x40


class Level(Enum):
    """How much a finding matters; a broker may start in spite of a warning, not of a problem."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `mend` is the command or the setting that mends it."""

    level: Level
    subject: str
    found: str
    mend: str = ""


def check_settings(config: BrokerConfig) -> Iterator[Finding]:
    """What the broker would warn of at its start."""
    for warning in config.warnings:
        yield Finding(
            Level.WARNING, "settings", warning, "remove or correct the line; `kbroker config --all` lists all"
        )
    if not config.warnings:
        yield Finding(Level.OK, "settings", "each setting is known and acted on")


def check_directory(path: str, reserve_bytes: int, mounts: Sequence[tuple[str, str, str]]) -> Iterator[Finding]:
    """One log directory: whether the broker may write there, whose it is, how much room it has."""
    subject = f"directory {path}"
    there = Path(path)
    nearest = next(each for each in (there, *there.parents) if each.exists())
    if not nearest.is_dir():
        yield Finding(Level.PROBLEM, subject, f"{nearest} is a file", "name a directory in log.dirs")
        return
    refusal = access_refused(path) if not os.access(nearest, os.W_OK | os.X_OK) else None
    if refusal is None and nearest == there:
        refusal = refused_below(path)
    if refusal is not None:
        yield Finding(Level.PROBLEM, subject, *refusal)
        return
    _, kind, options = mount_of(str(nearest.resolve()), mounts)
    if kind in VOLATILE:
        yield Finding(
            Level.WARNING,
            subject,
            f"lies on {kind}: its data are gone with the machine or the container",
            "mount a volume there, or name another directory in log.dirs",
        )
    if "ro" in options.split(","):
        yield Finding(
            Level.PROBLEM, subject, "its file system is mounted read-only", f"sudo mount -o remount,rw {nearest}"
        )
    space = os.statvfs(nearest)
    free = space.f_bavail * space.f_frsize
    if free < reserve_bytes:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"{free:,} bytes are free, less than {RESERVE}: records are refused",
            "free space, or lower the reserve",
        )
    else:
        state = "is there" if nearest == there else "will be made"
        yield Finding(Level.OK, subject, f"{state}, {free:,} bytes free on {kind or 'an unknown file system'}")


def check_contents(paths: Sequence[str]) -> Iterator[Finding]:
    """Whether the directories that are there belong together, to kbroker, and to no broker that runs."""
    from kbroker.startup.metadata_at_start import check_metadata_is_there
    from kbroker.storage.directories.log_dirs import LOCK_FILE, LogDirError, LogDirLockedError, open_directories
    from kbroker.storage.files.filesystem import FileSystem

    used = [path for path in paths if Path(path, LOCK_FILE).exists()]
    if not used:
        return
    files = FileSystem()
    directories = []
    try:
        directories = open_directories(files, used)
        check_metadata_is_there(files, directories)
    except LogDirLockedError as error:
        yield Finding(Level.WARNING, RUNNING, str(error), "stop that broker before you start another one there")
    except LogDirError as error:
        yield Finding(Level.PROBLEM, "log.dirs", str(error), "docs/operations.md")
    else:
        yield Finding(Level.OK, "log.dirs", "belong together, and no broker uses them")
    finally:
        for directory in directories:
            directory.release()


def read_mounts(text: str) -> list[tuple[str, str, str]]:
    """(mount point, type, options) of each line of /proc/mounts."""
    rows = [line.split(" ") for line in text.splitlines()]
    return [(row[1].replace("\\040", " "), row[2], row[3]) for row in rows if len(row) >= 4]


def mount_of(path: str, mounts: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    """The mount that a path lies on: of those that hold it the longest, and of equal ones the last."""
    found = ("/", "", "")
    for mount in mounts:
        point = mount[0].rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(mount[0]) >= len(found[0]):
            found = mount
    return found


def check_listeners(config: BrokerConfig, is_running: bool) -> Iterator[Finding]:
    """Whether the ports are free, and whether clients can use the address that they are answered."""
    advertised: Mapping[str, str] = {each.name: each.host for each in config.advertised_listeners}
    for each in config.listeners:
        subject = f"listener {each.name}://{each.host}:{each.port}"
        if not is_running and (why := why_not_bound(each.host, each.port)) is not None:
            yield Finding(Level.PROBLEM, subject, why, "name an address in listeners that is free")
            continue
        host = advertised.get(each.name)
        if host is None and config.get("zookeeper.connect"):
            # What a member registers with.
            host = each.host or socket.getfqdn()
        if host is None:
            yield Finding(Level.OK, subject, "clients are answered the address that they dialled")
        elif host.startswith(_LOOPBACK) and not each.host.startswith(_LOOPBACK):
            yield Finding(
                Level.WARNING,
                subject,
                f"clients on other machines are answered {host}, which is their own",
                "name this machine in advertised.listeners",
            )
        elif not _resolves(host):
            yield Finding(
                Level.WARNING,
                subject,
                f"the advertised name {host} does not resolve here",
                "correct advertised.listeners, or the name service",
            )
        else:
            yield Finding(Level.OK, subject, f"clients are answered {host}")


def check_metrics(config: BrokerConfig, is_running: bool) -> Iterator[Finding]:
    """Whether the metrics listener's port is free: a broker starts without it, and its metrics are not served."""
    address = parse_listener(config.get("metrics.listener"))
    if is_running or address is None:
        return
    subject = f"metrics.listener {config.get('metrics.listener')}"
    if (why := why_not_bound(*address)) is not None:
        yield Finding(
            Level.WARNING, subject, f"there will be no metrics: {why}", "name another port in metrics.listener"
        )
    else:
        yield Finding(Level.OK, subject, "can be listened on")


def _resolves(host: str) -> bool:
    if host in EVERY_HOST:
        return False
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def check_limits() -> Iterator[Finding]:
    """Descriptors and memory maps."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW_DESCRIPTORS:
        yield Finding(
            Level.WARNING,
            "descriptors",
            f"at most {hard} files and connections",
            "LimitNOFILE=65536 in the systemd unit, or ulimit -Hn 65536",
        )
    else:
        yield Finding(Level.OK, "descriptors", f"{'no limit' if hard == resource.RLIM_INFINITY else hard}")
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return
    if maps < FEW_MAPS:
        yield Finding(
            Level.WARNING, "memory maps", f"vm.max_map_count is {maps}", "sudo sysctl vm.max_map_count=262144"
        )
    else:
        yield Finding(Level.OK, "memory maps", f"vm.max_map_count is {maps}")


def check_clock() -> Iterator[Finding]:
    """Whether the system's clock follows a source: retention and timestamps go by it."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return
    if state < 0:
        return
    (status,) = struct.unpack_from("i", buffer, _STATUS_AT)
    if status & _STA_UNSYNC:
        yield Finding(
            Level.WARNING,
            "clock",
            "the clock follows no time source: retention and timestamps may be wrong",
            "sudo timedatectl set-ntp true",
        )
    else:
        yield Finding(Level.OK, "clock", "follows a time source")


def check_versions() -> Iterator[Finding]:
    """Versions of what takes part, and whether compressed batches go through C."""
    from kbroker.records.codec_libraries import native_codecs_loaded
    from kbroker.records.compression import Codec

    facts = (
        f"kbroker {__version__}, Python {platform.python_version()}, Linux {platform.release()} {platform.machine()}"
    )
    yield Finding(Level.OK, "versions", facts)
    missing = [codec.name.lower() for codec in (Codec.LZ4, Codec.ZSTD) if codec not in native_codecs_loaded()]
    if missing:
        yield Finding(
            Level.WARNING,
            "codecs",
            f"the C library of {' and '.join(missing)} was not found: the slower way is taken",
            "pip install --force-reinstall lz4 zstandard",
        )
    else:
        yield Finding(Level.OK, "codecs", "lz4 and zstd are read by their C libraries")
