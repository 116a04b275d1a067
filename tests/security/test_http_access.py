"""Who may look at the metrics listener and the console: proofs, rights, TLS, and what is shown without them.

Also of `kbroker.security.tls.http_context`.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.authorities import trusting
from kbroker.config import BrokerConfig
from kbroker.config.broker import ConfigError
from kbroker.metadata.security_image import ScramCredential, ScramKey
from kbroker.metrics import MetricsServer, Readiness, ReadyState
from kbroker.metrics.http_messages import Answer, Request
from kbroker.metrics.start import start_metrics_server
from kbroker.security import http_access as module
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.http_access import HttpAccess, http_access
from kbroker.security.principal import Principal
from kbroker.security.scram import ScramMechanism, credential_of_password
from kbroker.security.tls.http_context import HttpContext
from kbroker.security.tls.settings import TlsError
from tests.metrics.http_exchange import get, sources
from tests.security.certificates import Authority

ALICE = ScramKey("alice", ScramMechanism.SCRAM_SHA_256)
BOB = ScramKey("bob", ScramMechanism.SCRAM_SHA_512)
CREDENTIALS: dict[ScramKey, ScramCredential] = {
    ALICE: credential_of_password(ScramMechanism.SCRAM_SHA_256, "in:wonderland"),
    BOB: credential_of_password(ScramMechanism.SCRAM_SHA_512, "builder"),
}


class OnlyAlice:
    """An authorizer that lets alice do everything, and others nothing."""

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        return principal.name == "alice" and host == "127.0.0.1"

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return principal.name == "alice"

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def access_of(
    credentials: dict[ScramKey, ScramCredential] | None = None, authorizer: Any = None, **settings: object
) -> HttpAccess | None:
    config = BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in settings.items()})
    return http_access(config, lambda: CREDENTIALS if credentials is None else credentials, authorizer)


def serve(access: HttpAccess | None, scenario: Callable[[MetricsServer], Awaitable[None]]) -> None:
    async def site(request: Request) -> Answer:
        assert request.viewer is not None
        return Answer(200, b"shown\n")

    async def main() -> None:
        readiness = Readiness()
        readiness.move(ReadyState.READY)
        server = await start_metrics_server(
            "http://127.0.0.1:0", sources(), readiness, sites={"console": site}, access=access
        )
        assert server is not None
        try:
            await asyncio.wait_for(scenario(server), 60)
        finally:
            await server.close()

    uvloop.run(main())


BOTH = {"kbroker_metrics_authentication": "basic,bearer", "kbroker_metrics_bearer_token": "t0ken"}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRONG_SECONDS", 0.01)


def test_without_security_everybody_may_look() -> None:
    """Dashboards would stop working with an upgrade."""
    assert access_of() is None
    assert access_of(kbroker_metrics_authentication="none") is None


def test_what_proves_nothing_sees_probes_alone() -> None:
    """Names of topics, groups and clients would leave the broker to everybody who reaches the port."""

    async def scenario(server: MetricsServer) -> None:
        for path in ("/healthz", "/readyz"):
            assert (await get(server, path))[0] == 200
        wrong = (
            (),
            (basic("alice", "wrong"),),
            (basic("nobody", "in:wonderland"),),
            (basic("alice", ""),),
            ("Authorization: Basic !!!",),
            ("Authorization: Basic " + base64.b64encode(b"\xff\xfe").decode(),),
            ("Authorization: Basic",),
            ("Authorization: Bearer wrong",),
            ("Authorization: Bearer",),
            ("Authorization: Digest t0ken",),
        )
        for proof in wrong:
            for path in ("/metrics", "/console/", "/console/api/topics"):
                status, head, body = await get(server, path, *proof)
                assert status == 401 and b"kbroker_" not in body, (proof, path)
                assert 'Basic realm="kbroker"' in head and 'Bearer realm="kbroker"' in head

    serve(access_of(**BOTH), scenario)


def test_a_proof_opens_the_pages() -> None:
    """Nobody could look where it is asked for."""

    async def scenario(server: MetricsServer) -> None:
        for proof in (
            basic("alice", "in:wonderland"),
            basic("alice", "in:wonderland"),
            basic("bob", "builder"),
            "Authorization: Bearer t0ken",
            "Authorization: bearer  t0ken",
        ):
            assert (await get(server, "/metrics", proof))[0] == 200
            assert (await get(server, "/console/", proof))[2] == b"shown\n"

    serve(access_of(**BOTH), scenario)


def test_metrics_take_the_right_to_describe_the_cluster() -> None:
    """A user who may read one topic would see the names of all."""

    async def scenario(server: MetricsServer) -> None:
        assert (await get(server, "/metrics", basic("alice", "in:wonderland")))[0] == 200
        assert (await get(server, "/metrics", basic("bob", "builder")))[0] == 403
        assert (await get(server, "/metrics", "Authorization: Bearer t0ken"))[0] == 403
        assert (await get(server, "/console/", basic("bob", "builder")))[0] == 200

    serve(access_of(authorizer=OnlyAlice(), **BOTH), scenario)


def test_a_password_that_was_changed_counts_no_more() -> None:
    """A user who was removed would go on looking for as long as the broker runs."""
    credentials = dict(CREDENTIALS)

    async def scenario(server: MetricsServer) -> None:
        proof = basic("alice", "in:wonderland")
        assert (await get(server, "/metrics", proof))[0] == 200
        credentials[ALICE] = credential_of_password(ScramMechanism.SCRAM_SHA_256, "other")
        assert (await get(server, "/metrics", proof))[0] == 401
        assert (await get(server, "/metrics", basic("alice", "other")))[0] == 200
        del credentials[ALICE]
        assert (await get(server, "/metrics", basic("alice", "other")))[0] == 401

    serve(access_of(credentials, **BOTH), scenario)


def test_with_security_and_without_this_setting_nobody_looks() -> None:
    """A broker that was secured on its listeners would show its topics and records on another port."""
    access = HttpAccess(frozenset(), None, Principal("User", "metrics"), dict, OnlyAlice())

    async def scenario(server: MetricsServer) -> None:
        status, head, body = await get(server, "/metrics", basic("alice", "in:wonderland"))
        assert status == 401 and "WWW-Authenticate" not in head and b"kbroker.metrics.authentication" in body

    serve(access, scenario)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"authentication": "bearer"}, "bearer takes kbroker.metrics.bearer.token"),
        ({"authentication": "none,basic"}, "none does not go with others"),
        ({"authentication": "digest"}, "digest is none of basic, bearer, none"),
        ({"bearer.principal": "metrics"}, "must be a kind and a name"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], said: str) -> None:
    """The listener would be open, or closed for good, where something else was asked for."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping({f"kbroker.metrics.{name}": value for name, value in settings.items()})


def test_no_secret_is_printed() -> None:
    """A token would stand in a log."""
    request = Request("GET", "/metrics", "", "", False, True, authorization="Bearer t0ken")
    assert "t0ken" not in repr(request)


def test_the_listener_is_under_tls_and_takes_a_new_certificate(tmp_path: Path) -> None:
    """Passwords of viewers would cross the network in clear, or a renewed certificate wait for a restart."""
    authority = Authority()
    settings = authority.write(tmp_path)
    key_store = tmp_path / "keys.p12"
    stores = HttpContext.of(BrokerConfig.from_mapping(settings))
    client = trusting(str(tmp_path / "ca.pem"))

    async def scenario() -> None:
        server = await start_metrics_server("https://127.0.0.1:0", sources(), Readiness(), tls=lambda: stores.context)
        assert server is not None

        async def shown() -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client)
            certificate = writer.get_extra_info("ssl_object").getpeercert()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read(-1)).endswith(b"ok\n")
            writer.close()
            return int(certificate["serialNumber"], 16)

        try:
            first = await shown()
            key_store.write_bytes(b"nonsense")
            stores.refresh()
            assert await shown() == first
            renewed = authority.certify()
            key_store.write_bytes(renewed.pkcs12())
            stores.refresh()
            assert await shown() == renewed.certificate.serial_number
        finally:
            await server.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))


def test_suites_and_protocols_are_those_of_other_listeners(tmp_path: Path) -> None:
    """Metrics and the console would be open to suites that the operator has ruled out."""
    settings = Authority().write(tmp_path)
    suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    context = HttpContext.of(BrokerConfig.from_mapping({**settings, "ssl.cipher.suites": suite})).context
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    older = [each["name"] for each in context.get_ciphers() if not each["name"].startswith("TLS_")]
    assert older == ["ECDHE-RSA-AES256-GCM-SHA384"]
    with pytest.raises(TlsError, match="OpenSSL has no"):
        HttpContext.of(BrokerConfig.from_mapping({**settings, "ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA"}))


def test_https_without_a_key_is_refused() -> None:
    """The listener would be open in clear where TLS was asked for."""
    with pytest.raises(TlsError, match=r"ssl\.keystore\.location is not set"):
        HttpContext.of(BrokerConfig.from_mapping({}))
