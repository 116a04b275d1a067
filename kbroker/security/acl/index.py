"""All rules of a cluster, so arranged that a decision takes a few look-ups however many there are.

A rule concerns a resource if it has its name, a beginning of it (PREFIXED), or `*`.  Of the rules that concern a
resource, those count that are for the client or `User:*`, and for its address or `*`.  A denial beats everything that
is allowed.  What is allowed includes more: READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes
DESCRIBE_CONFIGS.  What is denied includes nothing.  Decisions are Kafka's (`StandardAuthorizerData`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kbroker.metadata.security_image import Acl
from kbroker.security.acl.kinds import ALL, WILDCARD, PatternType, Permission
from kbroker.security.authorizer import Operation

EVERYBODY = "User:*"
_EVERY_BIT = (1 << 32) - 1
_INCLUDED: Mapping[int, tuple[Operation, ...]] = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}


class Finding(NamedTuple):
    """What the rules say: `rule` is the one that decides, None where none does; `concerned`: whether any ACL matches
    the resource, for whichever principal."""

    rule: Acl | None
    concerned: bool

    @property
    def is_allowed(self) -> bool:
        """Whether a rule allows it."""
        return self.rule is not None and self.rule.permission_type == Permission.ALLOW


class _Grants:
    """The rules for one pattern, client and address."""

    __slots__ = ("allowed", "counts", "denied")

    def __init__(self) -> None:
        self.counts: Counter[Acl] = Counter()
        self.allowed = 0
        self.denied = 0

    def change(self, acl: Acl, by: int) -> None:
        self.counts[acl] += by
        if self.counts[acl] <= 0:
            del self.counts[acl]
        self.allowed = self.denied = 0
        for each in self.counts:
            if each.permission_type == Permission.DENY:
                self.denied |= bits_of(each)
            elif each.permission_type == Permission.ALLOW:
                self.allowed |= bits_of(each)

    def rule(self, bit: int, permission: Permission) -> Acl:
        return next(each for each in self.counts if each.permission_type == permission and bits_of(each) & bit)


_Client = tuple[str, str]
_Pattern = tuple[int, str]
_EVERYTHING: _Pattern = (PatternType.LITERAL.value, WILDCARD)


class _Kind:
    """The rules for resources of one kind."""

    __slots__ = ("by_client", "grants", "lengths", "patterns")

    def __init__(self) -> None:
        self.grants: dict[tuple[int, str, str, str], _Grants] = {}
        self.patterns: Counter[_Pattern] = Counter()
        # How many patterns there are with a prefix of that length.
        self.lengths: Counter[int] = Counter()
        # The same grants by client and address, for the question whether a client may do something at all.
        self.by_client: dict[_Client, dict[_Pattern, _Grants]] = {}

    def change(self, acl: Acl, by: int) -> None:
        key = (acl.pattern_type, acl.resource_name, acl.principal, acl.host)
        pattern, client = key[:2], key[2:]
        grants = self.grants.get(key)
        if grants is None:
            if by < 0:
                return
            grants = self.grants[key] = _Grants()
            self.by_client.setdefault(client, {})[pattern] = grants
            self._count(pattern, 1)
        grants.change(acl, by)
        if not grants.counts:
            del self.grants[key]
            patterns = self.by_client[client]
            del patterns[pattern]
            if not patterns:
                del self.by_client[client]
            self._count(pattern, -1)

    def _count(self, pattern: _Pattern, by: int) -> None:
        known = pattern in self.patterns
        self.patterns[pattern] += by
        if not self.patterns[pattern]:
            del self.patterns[pattern]
        if pattern[0] == PatternType.PREFIXED and known != (pattern in self.patterns):
            length = len(pattern[1])
            self.lengths[length] += by
            if not self.lengths[length]:
                del self.lengths[length]

    def concerning(self, name: str) -> Iterator[_Pattern]:
        """The patterns of rules that concern a resource."""
        patterns = self.patterns
        pattern = (PatternType.LITERAL.value, name)
        if pattern in patterns:
            yield pattern
        # Kafka's rules for all resources leave out those whose names begin with an asterisk themselves.
        if _EVERYTHING in patterns and not name.startswith(WILDCARD):
            yield _EVERYTHING
        size = len(name)
        for length in self.lengths:
            if length <= size:
                pattern = (PatternType.PREFIXED.value, name[:length])
                if pattern in patterns:
                    yield pattern


class AclIndex:
    """See the module."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._kinds: dict[int, _Kind] = {}
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        """A rule; one that is there already counts twice."""
        kind = self._kinds.get(acl.resource_type)
        if kind is None:
            kind = self._kinds[acl.resource_type] = _Kind()
        kind.change(acl, 1)

    def remove(self, acl: Acl) -> None:
        """A rule that was added."""
        kind = self._kinds.get(acl.resource_type)
        if kind is not None:
            kind.change(acl, -1)

    def find(self, principal: str, host: str, operation: int, kind: int, name: str) -> Finding:
        """The rule by which a client may do that to a resource, or not."""
        rules = self._kinds.get(kind)
        if rules is None:
            return Finding(None, False)
        bit = 1 << operation
        allowing: _Grants | None = None
        concerned = False
        for pattern_type, resource in rules.concerning(name):
            concerned = True
            for who, where in clients(principal, host):
                grants = rules.grants.get((pattern_type, resource, who, where))
                if grants is None:
                    continue
                if grants.denied & bit:
                    return Finding(grants.rule(bit, Permission.DENY), True)
                if grants.allowed & bit:
                    allowing = grants
        return Finding(None if allowing is None else allowing.rule(bit, Permission.ALLOW), concerned)

    def allows_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether rules let a client do that to at least one resource, which need not be there.

        An operation counts only by its name or ALL, and no prefix of the name that is allowed may be denied, as in
        Kafka's `authorizeByResourceType`.  A denial for `*` beats everything.
        """
        rules = self._kinds.get(kind)
        if rules is None:
            return False
        allowed: set[_Pattern] = set()
        denied: set[_Pattern] = set()
        for client in clients(principal, host):
            for pattern, grants in rules.by_client.get(client, {}).items():
                for acl in grants.counts:
                    if acl.operation in (operation, ALL):
                        (denied if acl.permission_type == Permission.DENY else allowed).add(pattern)
        if _EVERYTHING in denied:
            return False
        return _EVERYTHING in allowed or any(not _is_dominated(pattern, denied) for pattern in allowed)

    def denies_all(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether a rule for `*` keeps a client from doing that to any resource."""
        rules = self._kinds.get(kind)
        return rules is not None and any(
            grants.denied & 1 << operation
            for each in clients(principal, host)
            if (grants := rules.by_client.get(each, {}).get(_EVERYTHING)) is not None
        )


def clients(principal: str, host: str) -> tuple[_Client, ...]:
    """Whom rules have to be for, so that they count for a client at an address."""
    return (principal, host), (principal, WILDCARD), (EVERYBODY, host), (EVERYBODY, WILDCARD)


def bits_of(acl: Acl) -> int:
    """The operations that a rule is about, a bit for each."""
    if acl.operation == ALL:
        return _EVERY_BIT
    bits = 1 << acl.operation
    if acl.permission_type == Permission.ALLOW:
        for operation in _INCLUDED.get(acl.operation, ()):
            bits |= 1 << operation
    return bits


def _is_dominated(pattern: _Pattern, denied: set[_Pattern]) -> bool:
    kind, name = pattern
    if kind == PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED.value, name[: size + 1]) in denied for size in range(len(name)))
