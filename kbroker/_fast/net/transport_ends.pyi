import socket as sockets

class TransportEnds:
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    @property
    def socket(self) -> sockets.socket: ...
