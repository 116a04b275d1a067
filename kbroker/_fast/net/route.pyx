"""What the connections of one listener share: how each API is served, and the listener's parts.

Invariant: both are filled before the first connection is accepted and not changed afterwards, but for `draining` and
`gatekeeper`.
"""

from kbroker._fast.net.answer_memo cimport AnswerMemo
from kbroker._fast.net.direct cimport DirectAnswers
from kbroker._fast.net.reactor cimport Reactor


class NoResponse:
    """What a handler returns when the protocol wants no answer (Produce with acks=0)."""


NO_RESPONSE = NoResponse()

cdef class Route:
    """How one API is served: versions, handler, and the codec programs, compiled at their first use.

    `compile_request(version)` gives an object with `decode(buffer, pos, end)` and `decoding`, the same in pieces,
    `compile_response(version)` one with `begin_response(struct, correlation_id, flexible, items)`.
    Of a `cacheable` route the answers that its handler marks as
    such are kept for equal requests (`Endpoint.answers`).  `direct` is asked first, before anything is decoded.
    `throttle_at(version)`: where an answer made in C has its throttle_time_ms, from the frame's begin or, negative,
    from its end; 0 where it has none.  `limits_at(version)`: where the body of a request has min_bytes and, behind it,
    max_bytes; -1 where not; None for an API whose answers have no records to count.  `asks`: bits that say what clients
    come for with it, which `Connection.asked` collects.  `keeps_frame`: the handler wants the request's frame as it
    came (`RequestContext.frame`).
    """

    def __init__(self, int api_key, int min_version, int max_version, handle,
                 compile_request, compile_response, int header_flexible_from, int answer_flexible_from,
                 bint cacheable=False, DirectAnswers direct=None, throttle_at=None, limits_at=None, int asks=0,
                 bint keeps_frame=False):
        if not 0 <= api_key < API_KEYS:
            raise ValueError(f"API key {api_key} is out of range")
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version
        self.handle = handle
        self.cacheable = cacheable
        self.asks = asks
        self.keeps_frame = keeps_frame
        self.direct = direct
        self.throttle_at = throttle_at
        self.limits_at = limits_at
        self.compile_request = compile_request
        self.compile_response = compile_response
        self.header_flexible_from = header_flexible_from
        self.answer_flexible_from = answer_flexible_from
        self.decoders = [None] * (max_version + 1)
        self.encoders = [None] * (max_version + 1)

    cdef object decoder(self, int version):
        if self.decoders[version] is None:
            self.decoders[version] = self.compile_request(version).decode
        return self.decoders[version]

    cdef object decoding(self, int version):
        return self.compile_request(version).decoding

    cdef object encoder(self, int version):
        if self.encoders[version] is None:
            self.encoders[version] = self.compile_response(version).begin_response
        return self.encoders[version]


cdef class Endpoint:
    """What the connections of one listener share.

    `owner` is called back: `connection_opened(connection)` (False refuses it), `connection_closed(connection,
    reason)`, `bad_request(connection, reason, detail, kind)`, `handler_failed(ctx, error)`, `unsupported(ctx)` for
    versions out of range (the frame to answer with, or None), `spawn(ctx, coroutine, waits_for)` for a handler that was
    begun and waits, `serve_large(ctx, decoding, handle)` and `send_large(ctx, encoding, [answer])`, coroutines for what
    is done in pieces, `read_cold(connection, ranges)` for what must come from the disk before it can be sent
    (answered by `connection.helped()` when the first (region, position, size) is there; the others follow it), and
    while `draining`, when no further request is begun, `went_quiet()`.

    A frame has `max_frame_bytes` at most, and `first_frame_bytes` before its client has authenticated.  `services` are
    what its handlers work with.  `gatekeeper`: what each request is asked first, None while nothing is.
    """

    def __init__(self, str listener_name, Reactor reactor not None, services, routes, owner,
                 Py_ssize_t max_frame_bytes, Py_ssize_t first_frame_bytes):
        self.listener_name = listener_name
        self.reactor = reactor
        self.services = services
        self.pool = reactor.pool
        self.stats = reactor.stats
        self.busy_poll = reactor.busy_poll
        self.send_threads = reactor.send_threads
        self.flush_batch = reactor.flush_batch
        self.ready = reactor.ready
        self.loop = reactor.loop
        self.answers = AnswerMemo()
        self.routes = [None] * API_KEYS
        for route in routes:
            self.routes[(<Route?> route).api_key] = route
        self.owner = owner
        self.max_frame_bytes = max_frame_bytes
        self.first_frame_bytes = first_frame_bytes
        self.connections = set()
