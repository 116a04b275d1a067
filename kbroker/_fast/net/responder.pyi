from kbroker._fast.net.receiver import Receiver
from kbroker._fast.net.route import Endpoint

class Responder(Receiver):
    endpoint: Endpoint
    last_active: float
    def helped(self, sent: int = ...) -> None: ...
    def resume_sending(self) -> None: ...
    queued_bytes: int
    listener_name: str
