"""The gate of one principal and client id: what its requests are asked and counted for."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker._fast.gate.gate import Gate, Gatekeeper
from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.quotas.meters import QuotaKind, QuotaMeters
from kbroker.quotas.mutation_quota import MutationQuota
from kbroker.quotas.rules import Limit
from kbroker.schemas import schema, wire
from kbroker.security.acl import audit
from kbroker.security.authorizer import CachedAuthorizer, Operation, ResourceKind
from kbroker.security.principal import Session

if TYPE_CHECKING:
    from kbroker._fast.net.request_context import RequestContext

FIRST_VERSION_WITH_SESSIONS = schema("FetchRequest").first_version("session_id")
# Behind the frame's length and the correlation id, and, in flexible headers, no tagged fields.
_BODY_AT = 8
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
MOST_KNOWN = 4096
"""So many decisions each gate remembers at most."""
_NS_PER_PERCENT = 10_000_000


class ClientGate(Gate):
    """`limits` has the quotas that apply; `now_ms` a clock that does not go back; `judge` is the gatekeeper, which
    tells of changes of the authorizer's rules.

    Counted are (KIP-13, KIP-124) the request bytes of Produce, the answer bytes of Fetch and ShareFetch, and the loop's
    time spent on each request.  An answer is counted before it is sent.  An answer above a quota names the throttle
    time for which the connection is muted afterwards.  A throttled Fetch answer has no records, and none are counted.
    A throttled ShareFetch answer keeps its records: they are acquired, so no other member could get them until the lock
    expires, and the delivery has been counted.
    """

    def __init__(
        self,
        session: Session,
        authorizer: CachedAuthorizer | None,
        limits: Mapping[QuotaKind, Limit],
        meters: QuotaMeters,
        now_ms: Callable[[], int],
        judge: Gatekeeper | None = None,
    ) -> None:
        # An authorizer's rules may change with each generation of its gatekeeper.  Where all that is allowed is noted,
        # requests go through the handlers, which ask for each resource.
        generation = 0 if judge is None else judge.generation
        view: object = None if authorizer is None else (session.principal, session.host, generation)
        if not session.is_authenticated:
            # A client that has yet to authenticate is answered nothing from memory: its handlers move it on.
            view = session.state
        self._notes_all = authorizer is not None and audit.notes_all()
        super().__init__(view, not self._notes_all, judge if authorizer is not None else None)
        self.session = session
        self._authorizer = authorizer
        self._keeper = judge
        self._known: dict[tuple[int, int, str], bool] = {}
        self._known_in = -1
        self._limits = limits
        self._meters = meters
        self._now_ms = now_ms
        self._mutations: MutationQuota | None = None

    def client(self) -> str:
        """The client's principal, as rules name it."""
        return str(self.session.principal)

    def is_authorized(self, operation: int, kind: int, name: str) -> bool:
        """Whether the client may do that."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        generation = -1 if self._keeper is None else self._keeper.generation
        if generation != self._known_in or len(self._known) >= MOST_KNOWN:
            self._known.clear()
            self._known_in = generation
        known = self._known.get((operation, kind, name))
        if known is None:
            known = authorizer.is_authorized(
                self.session.principal, self.session.host, Operation(operation), ResourceKind(kind), name
            )
            if generation >= 0:
                self._known[operation, kind, name] = known
        return known

    def allows(self, ctx: RequestContext, operation: int, kind: int, name: str, quietly: bool) -> bool:
        """The same for a request; see `security.acl.audit` for what is noted."""
        allowed = self.is_authorized(operation, kind, name)
        if self._authorizer is not None and (not allowed or self._notes_all):
            self._note(ctx, Operation(operation), ResourceKind(kind), name, allowed, quietly)
        return allowed

    def _note(
        self, ctx: RequestContext, operation: Operation, kind: ResourceKind, name: str, allowed: bool, quietly: bool
    ) -> None:
        authorizer, session = self._authorizer, self.session
        if authorizer is not None and not allowed and not quietly:
            authorizer.denials[kind.name.lower(), operation.name.lower()] += 1
        if authorizer is not None and audit.is_noted(allowed=allowed, quietly=quietly):
            rule = authorizer.explain(session.principal, session.host, operation, kind, name)
            audit.note(
                session.principal,
                session.host,
                ctx.api_key,
                operation,
                kind,
                name,
                allowed=allowed,
                rule=rule,
                quietly=quietly,
            )

    def is_authorized_for_any(self, operation: int, kind: int) -> bool:
        """Whether the client may do that to at least one resource of that kind."""
        return self._authorizer is None or self._authorizer.is_authorized_for_any(
            self.session.principal, self.session.host, Operation(operation), ResourceKind(kind)
        )

    def admit(self, ctx: RequestContext) -> bool:
        session = self.session
        if session.expires_at is not None and session.has_expired(self._now_ms() / 1000):
            return self._admit_expired(session, ctx)
        if session.may_ask(ctx.api_key):
            return True
        ctx.connection.close("unauthenticated request")
        return False

    def _admit_expired(self, session: Session, ctx: RequestContext) -> bool:
        """A client whose session has ended may authenticate again (KIP-368), and nothing else."""
        if ctx.api_key == ApiKey.SASL_HANDSHAKE or (not session.is_authenticated and session.may_ask(ctx.api_key)):
            return True
        if session.exchange is not None:
            session.exchange.note_expiry()
        ctx.connection.close("session expired")
        return False

    def answer_limit(self, ctx: RequestContext) -> int:
        limit = self._limits.get(QuotaKind.FETCH)
        return -1 if limit is None else self._meters.most_in_window(limit)

    def mutation_quota(self, strict: bool) -> MutationQuota | None:
        """What a request that changes topics takes its share from; None where there is no such quota."""
        limit = self._limits.get(QuotaKind.CONTROLLER_MUTATION)
        if limit is None:
            return None
        self._mutations = MutationQuota(self._meters, limit, strict, self._now_ms())
        return self._mutations

    def settle(self, ctx: RequestContext, bytes_in: int, bytes_out: int, spent_ns: int) -> tuple[int, bool]:
        now_ms = self._now_ms()
        kind = _BANDWIDTH.get(ctx.api_key)
        size = bytes_out if kind is QuotaKind.FETCH else bytes_in
        bandwidth_ms = self._record(kind, size, now_ms) if kind is not None else 0
        request_ms = self._record(QuotaKind.REQUEST, spent_ns / _NS_PER_PERCENT, now_ms)
        throttle_ms = max(bandwidth_ms, request_ms)
        if throttle_ms > 0:
            self._count(
                kind if kind is not None and bandwidth_ms > request_ms else QuotaKind.REQUEST, throttle_ms, now_ms
            )
        withheld = throttle_ms > 0 and ctx.api_key == ApiKey.FETCH
        if withheld:
            self._record(QuotaKind.FETCH, -size, now_ms)
        mutations, self._mutations = self._mutations, None
        if mutations is not None and ctx.api_key in _MUTATING:
            throttle_ms = max(throttle_ms, mutations.throttle_ms)
        return throttle_ms, withheld

    def _record(self, kind: QuotaKind, value: float, now_ms: int) -> int:
        limit = self._limits.get(kind)
        return 0 if limit is None else self._meters.record(kind, limit, value, now_ms)

    def _count(self, kind: QuotaKind, throttle_ms: int, now_ms: int) -> None:
        limit = self._limits.get(kind)
        if limit is not None:
            self._meters.meter(kind, limit, now_ms).count_throttle(throttle_ms)

    def withheld(self, ctx: RequestContext, head: bytes, throttle_ms: int) -> object | None:
        at = _BODY_AT + response_header_version(ctx.api_key, ctx.api_version)
        if ctx.api_version < FIRST_VERSION_WITH_SESSIONS:
            return wire.FetchResponse(throttle_time_ms=throttle_ms, responses=[])
        _, error_code, session_id = _THROTTLE_ERROR_SESSION.unpack_from(head, at)
        if error_code:
            return None
        if session_id and ctx.services.fetch_sessions.drop_new(session_id):
            # The client has not got what a session begins with, so it begins again.
            session_id = 0
        return wire.FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id, responses=[])


_BANDWIDTH: Mapping[int, QuotaKind] = {
    ApiKey.PRODUCE: QuotaKind.PRODUCE,
    ApiKey.FETCH: QuotaKind.FETCH,
    ApiKey.SHARE_FETCH: QuotaKind.FETCH,
}
_MUTATING = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS})
