"""Where the container images keep data and expect files, and which of these places a container has mounted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from kbroker.config.images.names import Image

SECRETS = PurePosixPath("/etc/kafka/secrets")
"""Key stores and files with passwords (apache/kafka, cp-kafka)."""
MOUNTED_SETTINGS = (
    PurePosixPath("/mnt/shared/config/server.properties"),
    PurePosixPath("/bitnami/kafka/config/server.properties"),
    PurePosixPath("/opt/bitnami/kafka/config/server.properties"),
)
"""Files of settings that a user mounts; the environment has the last word."""
BITNAMI_CONFIG = (PurePosixPath("/opt/bitnami/kafka/config"), PurePosixPath("/bitnami/kafka/config"))
"""Directories of bitnami's with `certs` and `kafka_jaas.conf`, best first."""
BITNAMI_CERTIFICATES = tuple(
    directory / "certs"
    for directory in (
        *BITNAMI_CONFIG,
        PurePosixPath("/opt/bitnami/kafka/conf"),
        PurePosixPath("/bitnami/kafka/conf"),
    )
)

_KAFKA_DATA = PurePosixPath("/var/lib/kafka/data")
_BITNAMI_DATA = PurePosixPath("/bitnami/kafka/data")
_WURSTMEISTER = PurePosixPath("/kafka")
_PLACES = (
    _KAFKA_DATA,
    _BITNAMI_DATA,
    _WURSTMEISTER,
    PurePosixPath("/var/lib/kafka-logs"),
    PurePosixPath("/tmp/kraft-combined-logs"),
    PurePosixPath("/tmp/kafka-logs"),
)
_SHARED = frozenset(map(PurePosixPath, ("/", "/tmp", "/var", "/var/lib")))
"""Mounts on which much else lies."""
_DEFAULT: Mapping[Image, PurePosixPath] = MappingProxyType(
    {Image.KAFKA: _KAFKA_DATA, Image.BITNAMI: _BITNAMI_DATA, Image.WURSTMEISTER: _WURSTMEISTER}
)


def data_directory(
    image: Image, host_name: str, mounts: Collection[PurePosixPath], home: PurePosixPath | None = None
) -> PurePosixPath | None:
    """Where data go when no variable says so: the image's own place, unless a volume is mounted at another image's
    place and none there.  None: use kbroker's `home`, because no variable names a
    directory, or the only volume is mounted there."""
    default = _DEFAULT.get(image)
    chosen = default
    if default is None or not _is_mounted(default, mounts):
        mounted = [place for place in _PLACES if _is_mounted(place, mounts)]
        if not mounted and home is not None and _is_mounted(home, mounts):
            return None
        chosen = mounted[0] if len(mounted) == 1 else default
    if chosen == _WURSTMEISTER:
        # As its start script has it: brokers that share a volume have directories of their own.
        return _WURSTMEISTER / f"kafka-logs-{host_name}"
    return chosen


def _is_mounted(place: PurePosixPath, mounts: Collection[PurePosixPath]) -> bool:
    """Whether a place is in a volume of its own."""
    return any(mount == place or (mount in place.parents and mount not in _SHARED) for mount in mounts)


def mounts_here() -> frozenset[PurePosixPath]:
    """The mount points that this process sees; none where the system does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    fields = (line.split(" ") for line in lines)
    return frozenset(PurePosixPath(found[4].replace("\\040", " ")) for found in fields if len(found) > 4)
