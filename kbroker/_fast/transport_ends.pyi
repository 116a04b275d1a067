class TransportEnds:
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
