"""A client's login as frames of Kafka's protocol: requests out, answers in, without a socket.

    SaslHandshake 1, which names the mechanism; then SaslAuthenticate 1 for each token of the mechanism

Its first version is as old as Kafka 2.2; from then on an answer says how long the proof counts (KIP-368).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kbroker._fast.wire.codec import DecodeError
from kbroker.error_codes import error_name
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request_parts
from kbroker.schemas import wire
from kbroker.security.sasl.mechanism import SaslError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.protocol.messages import Message
    from kbroker.security.sasl.mechanism import ClientMechanism

VERSION = 1


class LoginError(Exception):
    """The login has failed; the text is the other side's, or says what is wrong with it."""


class LoginExchange:
    """One login.  `begin` has the first request; `answered` takes an answer and has the next one.

    `lifetime_ms`: how long the proof counts, once the exchange has ended; 0: for good.
    """

    def __init__(self, mechanism: ClientMechanism, client_id: str) -> None:
        self._mechanism = mechanism
        self._client_id = client_id
        self._ids = itertools.count(1)
        self._asked: tuple[type[Message], int] | None = None
        self.lifetime_ms = 0

    def begin(self) -> list[Buffer]:
        """The first request."""
        return self._ask(wire.SaslHandshakeRequest(mechanism=self._mechanism.name), wire.SaslHandshakeResponse)

    def answered(self, frame: Buffer) -> list[Buffer] | None:
        """The next request after an answer, given what follows the frame's length; None: the login is done.

        LoginError where it has failed.
        """
        assert self._asked is not None
        (kind, expected), self._asked = self._asked, None
        try:
            correlation_id, answer = decode_response(kind, VERSION, frame)
        except DecodeError as error:
            raise LoginError(f"the answer to the login cannot be read: {error}") from None
        if correlation_id != expected:
            raise LoginError(f"answer {correlation_id} where {expected} is due")
        match answer:
            case wire.SaslHandshakeResponse():
                return self._handshaken(answer)
            case wire.SaslAuthenticateResponse():
                return self._authenticated(answer)
        raise AssertionError(kind)

    def _handshaken(self, answer: wire.SaslHandshakeResponse) -> list[Buffer]:
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            raise LoginError(
                f"{error_name(answer.error_code)}: {self._mechanism.name} is asked for, and {offered} offered there"
            )
        return self._token(self._mechanism.first())

    def _authenticated(self, answer: wire.SaslAuthenticateResponse) -> list[Buffer] | None:
        if answer.error_code:
            raise LoginError(answer.error_message or error_name(answer.error_code))
        try:
            token = self._mechanism.evaluate(bytes(answer.auth_bytes))
        except SaslError as error:
            raise LoginError(str(error)) from None
        if token is not None:
            return self._token(token)
        if not self._mechanism.complete:
            raise LoginError(f"{self._mechanism.name} came to no end")
        self.lifetime_ms = answer.session_lifetime_ms
        return None

    def _token(self, token: bytes) -> list[Buffer]:
        return self._ask(wire.SaslAuthenticateRequest(auth_bytes=token), wire.SaslAuthenticateResponse)

    def _ask(self, request: Message, kind: type[Message]) -> list[Buffer]:
        correlation_id = next(self._ids)
        self._asked = kind, correlation_id
        assert request.api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        return encode_request_parts(request.api_key, VERSION, correlation_id, self._client_id, request)
