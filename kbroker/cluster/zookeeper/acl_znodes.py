"""ACLs in ZooKeeper, where Kafka's `AclAuthorizer` has them: read at start, followed by their changes, and written.

    /kafka-acl/Topic/t1                      {"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*",
                                             "operation":"Read"}],"version":1}
    /kafka-acl-extended/prefixed/Topic/pre   the same of resources whose names begin so
    /kafka-acl-changes/acl_changes_…         TOPIC:t1
    /kafka-acl-extended-changes/…            {"version":1,"resourceType":"TOPIC","name":"pre","patternType":"PREFIXED"}

Any broker writes them, on the version that it has read, so that two that write at once both count.  What is in an entry
that makes no sense here stays as it is when others of its znode change; it allows and denies nothing, as with Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.zookeeper.notifications import Notifications
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    ZooKeeper,
    ZooKeeperError,
    ensure_path,
)
from kbroker.cluster.zookeeper.znode_json import (
    Json,
    ZnodeError,
    as_dict,
    as_int,
    as_list,
    as_text,
    json_bytes,
    json_object,
)
from kbroker.metadata.image import MetadataDelta
from kbroker.metadata.security_image import Acl, SecurityDelta
from kbroker.security.acl.changes import id_of
from kbroker.security.acl.kinds import (
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    PatternType,
    camel,
    number_of,
)
from kbroker.security.authorizer import ResourceKind

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache

LITERAL_ROOT, PREFIXED_ROOT = "/kafka-acl", "/kafka-acl-extended/prefixed"
LITERAL_CHANGES, PREFIXED_CHANGES = "/kafka-acl-changes", "/kafka-acl-extended-changes"
CHANGE_NAME = "acl_changes_"
VERSION = 1
ATTEMPTS = 100
"""So often others may come first."""
_ROOTS = {PatternType.LITERAL.value: LITERAL_ROOT, PatternType.PREFIXED.value: PREFIXED_ROOT}


class AclResource(NamedTuple):
    """What the ACLs of one znode are about."""

    resource_type: int
    name: str
    pattern_type: int

    @property
    def path(self) -> str:
        """Its znode."""
        return f"{_ROOTS[self.pattern_type]}/{camel(RESOURCES[self.resource_type])}/{self.name}"


def encode_acls(entries: Sequence[Json]) -> bytes:
    """The content of a resource's znode."""
    return json_bytes({"acls": list(entries), "version": VERSION})


def decode_entries(data: bytes | None) -> list[Json]:
    """The entries of a resource's znode.  ZnodeError."""
    content = json_object(data)
    as_int(content.get("version"), "version", VERSION)
    entries = as_list(content.get("acls"), "acls")
    for each in entries:
        fields = as_dict(each, "an ACL")
        for name in ("principal", "permissionType", "operation", "host"):
            as_text(fields.get(name), name)
    return entries


def entry_of(acl: Acl) -> Json:
    """An ACL as an entry of its resource's znode."""
    return {
        "principal": acl.principal,
        "permissionType": camel(PERMISSIONS[acl.permission_type]),
        "host": acl.host,
        "operation": camel(OPERATIONS[acl.operation]),
    }


def acl_of(resource: AclResource, entry: Json) -> Acl:
    """What an entry says of a resource."""
    fields = as_dict(entry, "an ACL")
    text = {name: value for name, value in fields.items() if isinstance(value, str)}
    return Acl(
        resource.resource_type,
        resource.name,
        resource.pattern_type,
        text["principal"],
        text["host"],
        number_of(OPERATIONS, text["operation"]),
        number_of(PERMISSIONS, text["permissionType"]),
    )


def encode_change(resource: AclResource) -> bytes:
    """The notification of a change."""
    kind = RESOURCES[resource.resource_type]
    if resource.pattern_type == PatternType.LITERAL:
        return f"{kind}:{resource.name}".encode()
    return json_bytes(
        {
            "version": VERSION,
            "resourceType": kind,
            "name": resource.name,
            "patternType": PATTERNS[resource.pattern_type],
        }
    )


def decode_change(data: bytes | None) -> AclResource:
    """What a notification of a change of literal ACLs names.  ZnodeError."""
    try:
        kind, colon, name = (data or b"").decode().partition(":")
    except UnicodeDecodeError as error:
        raise ZnodeError(f"no text: {error}") from None
    return _resource(kind, name if colon else "", PatternType.LITERAL)


def decode_extended_change(data: bytes | None) -> AclResource:
    """The same of prefixed ones.  ZnodeError."""
    content = json_object(data)
    as_int(content.get("version"), "version", VERSION)
    texts = [as_text(content.get(name), name) for name in ("resourceType", "name", "patternType")]
    if number_of(PATTERNS, texts[2]) != PatternType.PREFIXED:
        raise ZnodeError(f"{texts[2]!r} is not PREFIXED")
    return _resource(texts[0], texts[1], PatternType.PREFIXED)


def _resource(kind: str, name: str, pattern: PatternType) -> AclResource:
    number = number_of(RESOURCES, kind)
    if number not in set(ResourceKind) or not name:
        raise ZnodeError(f"{kind}:{name} is no resource")
    return AclResource(number, name, pattern.value)


class AclZnodes:
    """What ZooKeeper has of ACLs, as this broker knows it by now.  `run` follows changes until it is cancelled."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._reader = ZnodeReader(zookeeper)
        self._cache: MetadataCache | None = None
        self._known: dict[AclResource, dict[bytes, Acl]] = {}
        self._literal = Notifications(
            zookeeper, self._reader, LITERAL_CHANGES, decode_change, self._reload, "literal ACLs", self.read
        )
        self._prefixed = Notifications(
            zookeeper, self._reader, PREFIXED_CHANGES, decode_extended_change, self._reload, "prefixed ACLs"
        )

    def publish_to(self, cache: MetadataCache) -> None:
        """Let `cache` have what is read from now on."""
        self._cache = cache

    async def load(self) -> None:
        """Make what is missing of the tree, and read everything; may be done again."""
        for kind in ResourceKind:
            for root in _ROOTS.values():
                await _ensured(self._zookeeper, f"{root}/{camel(kind.name)}")
        for folder in (LITERAL_CHANGES, PREFIXED_CHANGES):
            await _ensured(self._zookeeper, folder)
        await self._literal.mark()
        await self._prefixed.mark()
        await self.read()

    async def read(self) -> None:
        """Read everything, and make nothing."""
        for resource in await self._resources():
            await self._reload(resource)

    @property
    def nonsense(self) -> Mapping[str, str]:
        """What makes no sense, by its path, and why."""
        return self._reader.nonsense

    async def _resources(self) -> list[AclResource]:
        found = list(self._known)
        for pattern, root in _ROOTS.items():
            for kind in ResourceKind:
                for name in await self._reader.children(f"{root}/{camel(kind.name)}"):
                    found.append(AclResource(kind.value, name, pattern))
        return list(dict.fromkeys(found))

    async def run(self) -> None:
        """Follow notifications."""
        await asyncio.gather(self._literal.run(), self._prefixed.run())

    async def _reload(self, resource: AclResource) -> None:
        found = await self._reader.read(resource.path, decode_entries)
        if found is None and resource.path in self._reader.nonsense:
            return  # What was known of it counts on.
        acls = [acl_of(resource, entry) for entry in (found[0] if found is not None else ())]
        self._publish(resource, {id_of(acl): acl for acl in acls})

    def _publish(self, resource: AclResource, acls: dict[bytes, Acl]) -> None:
        before = self._known.pop(resource, {})
        if acls:
            self._known[resource] = acls
        changes: dict[bytes, Acl | None] = {key: None for key in before if key not in acls}
        changes.update((key, acl) for key, acl in acls.items() if key not in before)
        if changes and self._cache is not None:
            self._cache.apply(MetadataDelta(security=SecurityDelta(acls=changes)))

    # Writing

    async def alter(self, changes: Mapping[bytes, Acl | None], known: Mapping[bytes, Acl]) -> None:
        """Make and delete ACLs, by their ids among the `known`, and let all brokers know.  ZooKeeperError."""
        wanted: dict[AclResource, tuple[list[Acl], list[Acl]]] = {}
        for key, acl in changes.items():
            subject = known[key] if acl is None else acl
            resource = AclResource(subject.resource_type, subject.resource_name, subject.pattern_type)
            wanted.setdefault(resource, ([], []))[acl is None].append(subject)
        for resource, (added, removed) in wanted.items():
            await self._write(resource, added, removed)
            changed = self._literal if resource.pattern_type == PatternType.LITERAL else self._prefixed
            await changed.tell(CHANGE_NAME, encode_change(resource))
            await self._reload(resource)

    async def _write(self, resource: AclResource, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        path = resource.path
        if "/" in resource.name or resource.name in ("", ".", ".."):
            raise ZooKeeperError(f"{resource.name!r} is no name of a znode")
        for _ in range(ATTEMPTS):
            try:
                znode = await self._zookeeper.get(path)
            except NoNodeError:
                znode = None
            before = [] if znode is None else _entries(path, znode.data)
            entries = [each for each in before if acl_of(resource, each) not in removed]
            there = {acl_of(resource, each) for each in entries}
            entries += [entry_of(acl) for acl in added if acl not in there]
            if entries == before:
                return
            try:
                if znode is None:
                    await _ensured(self._zookeeper, path.rpartition("/")[0])
                    await self._zookeeper.create(path, encode_acls(entries))
                elif entries:
                    await self._zookeeper.set(path, encode_acls(entries), znode.stat.version)
                else:
                    await self._zookeeper.delete(path, znode.stat.version)
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
            return
        raise ZooKeeperError(f"{path} was changed by others {ATTEMPTS} times in a row")


def _entries(path: str, data: bytes | None) -> list[Json]:
    try:
        return decode_entries(data)
    except ZnodeError as error:
        raise ZooKeeperError(f"{path} makes no sense: {error}") from error


async def _ensured(zookeeper: ZooKeeper, path: str) -> None:
    try:
        await ensure_path(zookeeper, path)
    except NodeExistsError:
        return
