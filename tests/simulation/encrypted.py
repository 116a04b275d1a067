"""Connections of model clients under TLS: between a client and its end of a connection there is a session of OpenSSL.

What the broker sends has to be records of that session, and nothing else.  A key of RSA makes the size of each message
the same in every process, so that a seed stays one history though its sessions have keys of their own.
"""

from __future__ import annotations

import datetime
import random
import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.sockets import End
    from tests.simulation.world import World

ENCRYPTED = 0.12
"""The share of histories of one broker that have a listener under TLS."""
OVER_TLS = 0.6
"""The share of connections there that are made to it."""
PORT = 9094
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
_SALT = 0x715
_EXPONENT = 65537
_P = int(
    "E9B3AB12642AFD701D60FDFFD906236796C46CAE808F213D7F2B77E859058A59320D0E739E7938F92E7DC84D3E81BDB7"
    "B11E23E87A07AAE9E69CAC88729C8DDA0202A5A8FAA4DB5CEABAE41749FD6AD712D9774419F0FD3F799A318C93F7C9F0"
    "9E1E8827CC3F4CEFAB4F8FA031605BD63D44EEE8804E2949FC4E8FE0F574FA99",
    16,
)
_Q = int(
    "BC4E7D05062A1B4BC70BEAB4AA5F90FA0E54000B707CC01746F2328E74CB476353AE3280500FF989E952E3D69239B18A"
    "87DF9A8FBDA3F0D579346E61BFF1A31C3853877AC927D97900664A47F8A0C479FD7E4A13981721BA512880A676C9A7A7"
    "D1BE610CF483BB4E45FC727006AB582DC3276AEFC0C33733C3B7335CEDE67C91",
    16,
)


def is_encrypted(seed: int, nodes: int) -> bool:
    """Whether a history has a listener under TLS."""
    return nodes == 1 and random.Random(seed ^ _SALT).random() < ENCRYPTED


@cache
def _certified() -> tuple[str, str]:
    """The broker's key and its certificate."""
    numbers = rsa.RSAPublicNumbers(_EXPONENT, _P * _Q)
    d = rsa.rsa_recover_private_exponent(_EXPONENT, _P, _Q)
    rest = rsa.rsa_crt_dmp1(d, _P), rsa.rsa_crt_dmq1(d, _Q), rsa.rsa_crt_iqmp(_P, _Q)
    key = rsa.RSAPrivateNumbers(_P, _Q, d, *rest, numbers).private_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simulated")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.decode(), certificate.public_bytes(pem).decode()


def tls_settings(listeners: str, host: str) -> Mapping[str, str]:
    """A broker's settings for the listener, beside those that it has."""
    key, certificate = _certified()
    return {
        "listeners": f"{listeners},SSL://{host}:{PORT}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate,
        "kbroker.tls.kernel": "off",
    }


@cache
def contexts() -> tuple[ssl.SSLContext, ...]:
    """Those of clients, one for each of VERSIONS."""
    return tuple(map(_context, VERSIONS))


def _context(version: ssl.TLSVersion) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.load_verify_locations(cadata=_certified()[1])
    made.minimum_version = made.maximum_version = version
    return made


class Encryption:
    """What the clients of one history have for it: the sessions that they take up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rng = random.Random(world.later.getrandbits(64))
        self._sessions: dict[ssl.SSLContext, ssl.SSLSession] = {}

    def over(self, connection: ModelConnection) -> EncryptedSide:
        """The protocol that has the connection's bytes encrypted."""
        rng = self.rng
        context = rng.choice(contexts())
        session = self._sessions.get(context) if rng.random() < 0.6 else None
        return EncryptedSide(self, connection, context, session)

    def shaken(self, side: EncryptedSide) -> None:
        """A session may be taken up again by the next connection; of TLS 1.3 only when its ticket has come."""
        session = side.tls.session
        if session is not None and session.has_ticket:
            self._sessions[side.tls.context] = session

    def fail(self, side: EncryptedSide, error: ssl.SSLError) -> None:
        """What came are no records of the session."""
        self._world.judge.fail(f"{side.connection.name}: what comes cannot be decrypted: {error}")


class EncryptedSide:
    """The transport of a model connection, and the protocol of its end."""

    def __init__(
        self,
        encryption: Encryption,
        connection: ModelConnection,
        context: ssl.SSLContext,
        session: ssl.SSLSession | None,
    ) -> None:
        self.connection = connection
        self._encryption = encryption
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, session=session)
        self._end: End
        self._is_shaken = False
        self._unsent: list[bytes] = []
        """Until the handshake is over."""
        self._ends = False
        """Whether nothing is to be sent behind that."""
        self._received = bytearray(1 << 16)

    @property
    def peer(self) -> End:
        """The broker's end."""
        return self._end.peer

    # What the loop calls

    def connection_made(self, end: End) -> None:
        self._end = end
        self.connection.connection_made(self)  # type: ignore[arg-type]
        self._go_on()

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, size: int) -> None:
        self._incoming.write(memoryview(self._received)[:size])
        self._go_on()

    def eof_received(self) -> bool:
        return self.connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.connection.connection_lost(error)

    def _go_on(self) -> None:
        """With what has come, if that is enough."""
        try:
            if not self._is_shaken:
                self.tls.do_handshake()
                self._is_shaken = True
                self._encryption.shaken(self)
                for data in self._unsent:
                    self.tls.write(data)
                self._unsent.clear()
                self._flush()
                if self._ends:
                    self._say_goodbye()
            while data := self.tls.read(1 << 16):
                self._take(data)
            self._encryption.shaken(self)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            pass  # The end of what the broker sends; that of the connection comes behind it.
        except ssl.SSLError as error:
            self._encryption.fail(self, error)
        self._flush()

    def _take(self, data: bytes) -> None:
        connection = self.connection
        while data:
            room = connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            connection.buffer_updated(size)
            data = data[size:]

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not (self._end.closed or self._end.sent_end):
            self._end.write(data)

    def _say_goodbye(self) -> None:
        """Whole, as TLS has it, or as the system ends a side; the broker's answers come all the same."""
        kind = self._encryption.rng.random()
        if kind < 0.7:
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # The other side has yet to say so.
            self._flush()
        if kind >= 0.3:
            self._end.write_eof()

    # What the client calls

    @property
    def closed(self) -> bool:
        """Whether the connection was ended here."""
        return self._end.closed

    @property
    def paused(self) -> bool:
        """Whether the client takes nothing."""
        return self._end.paused

    def is_closing(self) -> bool:
        return self._end.is_closing()

    def write(self, data: bytes) -> None:
        assert not self._ends, "as a real socket's transport refuses it"
        if not self._is_shaken:
            self._unsent.append(data)
        elif not self._end.closed:
            self.tls.write(data)
            self._flush()

    def write_eof(self) -> None:
        if not self._ends:
            self._ends = True
            if self._is_shaken and not self._end.closed:
                self._say_goodbye()

    def abort(self) -> None:
        self._end.abort()

    def reset(self) -> None:
        self._end.reset()

    def pause_reading(self) -> None:
        self._end.pause_reading()

    def resume_reading(self) -> None:
        self._end.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._end.get_extra_info(name, default)


__all__ = ["EncryptedSide", "Encryption", "contexts", "is_encrypted", "tls_settings"]
