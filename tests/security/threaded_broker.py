"""A broker whose clients log in by every mechanism, on a thread of the test, for clients that wait."""

from __future__ import annotations

import time
from pathlib import Path

from tests.gate.guarded_broker import GuardedBroker
from tests.ports import free_port
from tests.security.bearer import Issuer
from tests.security.sasl_broker import PLAIN_MODULE, PutUser

USERS = {"alice": "alice-pw", "admin": "admin-pw"}


class ThreadedBroker:
    """See the module.  Users of SCRAM are `sam` and those of PLAIN; `token` makes bearer tokens."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.issuer = Issuer()
        keys = folder / "keys.json"
        keys.write_bytes(self.issuer.jwks())
        self.port, open_port = free_port(), free_port()
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        prefix = "listener.name.secure"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        own = {
            "listeners": f"PLAINTEXT://127.0.0.2:{open_port},SECURE://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{prefix}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
            f"{prefix}.oauthbearer.sasl.jaas.config": bearer,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "delegation.token.secret.key": "secret",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        by_settings = "authorizer.class.name" in settings
        self.guarded = GuardedBroker(folder / "logs", {**own, **settings}, by_settings=by_settings)

    @property
    def bootstrap(self) -> str:
        """The secured listener's address."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, with its users."""
        self.guarded.start()
        for name, password in {"sam": "sam-pw", **USERS}.items():
            self.guarded._run(self.guarded._broker.services.controller.alter_security(PutUser(name, password)))

    def stop(self) -> None:
        """Stop it."""
        self.guarded.stop()

    def token(self, name: str, seconds: int = 600) -> str:
        """A bearer token of a user."""
        now = int(time.time())
        return self.issuer.token({"sub": name, "iat": now, "exp": now + seconds})

    def logins(self, kind: str = "succeeded") -> dict[str, int]:
        """How many logins there were, by mechanism."""
        return dict(getattr(self.guarded._broker.node.sasl.stats["SECURE"], kind))
