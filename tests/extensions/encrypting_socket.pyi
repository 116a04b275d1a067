import ssl

from kbroker._fast.net.connection_interface import ConnectionInterface
from kbroker._fast.net.socket_part import SocketPart

class EncryptingSocket(SocketPart):
    def __init__(self, connection: ConnectionInterface, context: ssl.SSLContext) -> None: ...
