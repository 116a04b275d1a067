"""What listeners are open to, in words.

Also of `kbroker.security.protocols`.
"""

from __future__ import annotations

import pytest

from kbroker.cli.checks.host_checks import Level
from kbroker.cli.checks.security_checks import check_openness
from kbroker.config import BrokerConfig
from kbroker.metadata.security_image import Acl
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.client.client_security import ClientSecurity
from kbroker.security.openness import broker_principal, openness, warning_of_brokers, warning_of_nobody
from kbroker.security.principal import ANONYMOUS, Principal
from kbroker.security.protocols import has_sasl, has_tls
from kbroker.security.sasl.mechanism import Login

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("values", "words", "exposed"),
    [
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9092"},
            "listener PLAINTEXT://127.0.0.1:9092 is open to any process of this machine, as User:ANONYMOUS, "
            "unencrypted; they may do everything, as authorizer.class.name is not set",
            False,
        ),
        (
            {"listeners": "PLAINTEXT://:9092"},
            "open to any client that can connect, as User:ANONYMOUS, unencrypted; they may do everything",
            True,
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "authorizer.class.name": STANDARD},
            "as User:ANONYMOUS, unencrypted; ACLs say what they may do",
            False,
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"},
            "but User:ANONYMOUS is a super user and may do everything",
            True,
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092",
                "authorizer.class.name": STANDARD,
                "allow.everyone.if.no.acl.found": "true",
            },
            "what no ACL is about is open to all",
            False,
        ),
    ],
)
def test_a_listener_says_what_it_is_open_to(values: dict[str, str], words: str, exposed: bool) -> None:
    """An owner would take an open broker for a closed one."""
    config = BrokerConfig.from_mapping(values)
    (found,) = openness(config)
    assert words in str(found) and found.is_exposed == exposed
    (finding,) = check_openness(config)
    assert (finding.level is Level.WARNING) == exposed == bool(finding.mend)


def test_brokers_that_may_not_reach_each_other_are_warned_of() -> None:
    """Replicas would not follow, and only the others' audit logs say why."""
    peer = Principal("User", "broker")

    def warning(*acls: Acl, super_users: frozenset[str] = frozenset(), everyone: bool = False) -> str | None:
        authorizer = StandardAuthorizer(AuthorizerSettings(super_users, everyone), acls)
        return warning_of_brokers(authorizer, peer, "10.0.0.1")

    told = warning() or ""
    assert "brokers reach each other as User:broker" in told and "--operation cluster-action" in told
    assert warning(super_users=frozenset({"User:broker"})) is None
    assert warning(Acl(4, "kafka-cluster", 3, "User:broker", "*", 9, 3)) is None
    assert warning(Acl(4, "kafka-cluster", 3, "User:broker", "10.0.0.2", 9, 3)) is not None
    assert warning(everyone=True) is None


def test_an_authorizer_that_nobody_can_tell_anything_is_warned_of() -> None:
    """An owner would lock out everybody, himself included, and not know why."""

    def warning(*acls: Acl, **values: str) -> str | None:
        settings = {"authorizer.class.name": STANDARD, **{key.replace("_", "."): each for key, each in values.items()}}
        return warning_of_nobody(BrokerConfig.from_mapping(settings), acls)

    assert "no principal may change ACLs" in (warning() or "")
    assert warning(super_users="User:admin") is None
    assert warning(allow_everyone_if_no_acl_found="true") is None
    assert warning(authorizer_class_name="") is None
    assert warning(Acl(4, "kafka-cluster", 3, "User:a", "*", 7, 3)) is None
    assert warning(Acl(4, "kafka-cluster", 3, "User:a", "*", 7, 2), Acl(2, "t", 3, "User:a", "*", 2, 3)) is not None


def test_a_broker_knows_its_own_principal_where_its_settings_tell() -> None:
    """A warning would name somebody else."""
    assert broker_principal(ClientSecurity()) == ANONYMOUS
    login = Login("broker", "secret")
    assert broker_principal(ClientSecurity("SASL_SSL", login=login)) == Principal("User", "broker")
    assert broker_principal(ClientSecurity("SSL")) is None
    assert broker_principal(ClientSecurity("SASL_SSL", login=Login("id", "hmac", by_token=True))) is None


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_protocols_name_says_what_it_has(protocol: str, tls: bool, sasl: bool) -> None:
    """A listener would be open that is told to be protected."""
    assert (has_tls(protocol), has_sasl(protocol)) == (tls, sasl)
