"""What each listener is open to: who may connect, as whom, and what they may do; in words, for the log and the doctor.

Also whether brokers may reach each other: each needs CLUSTER_ACTION at the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.config import EVERY_HOST
from kbroker.security.acl.kinds import ALL, Permission
from kbroker.security.acl.settings import AuthorizerSettings, authorizer_settings
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.security.principal import ANONYMOUS, Principal
from kbroker.security.protocols import has_sasl, has_tls

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener import Listener
    from kbroker.metadata.security_image import Acl
    from kbroker.security.authorizer import Authorizer
    from kbroker.security.client.client_security import ClientSecurity


class Openness(NamedTuple):
    """Of one listener.  `is_exposed`: everybody who reaches it over a network may do everything."""

    listener: str
    who: str
    rights: str
    is_exposed: bool

    def __str__(self) -> str:
        return f"listener {self.listener} is open to {self.who}; {self.rights}"


def openness(config: BrokerConfig) -> Iterator[Openness]:
    """Of each listener, by the settings."""
    settings = authorizer_settings(config)
    for listener in config.every_listener:
        is_anonymous, who = _clients(config, listener)
        may_all, rights = _rights(settings, is_anonymous)
        carried = "under TLS" if has_tls(listener.protocol) else "unencrypted"
        exposed = is_anonymous and may_all and not is_loopback(listener.host)
        yield Openness(str(listener), f"{who}, {carried}", rights, exposed)


def warnings_of_controllers(config: BrokerConfig) -> Iterator[str]:
    """What to warn of at the listeners of a voter: any host that reaches one may vote, claim to lead, and change the
    cluster, since the quorum believes every epoch that is larger than its own (Kafka's protocol has nothing else)."""
    settings = authorizer_settings(config)
    for listener in config.controller_listeners:
        is_anonymous, _ = _clients(config, listener)
        may_all, _ = _rights(settings, is_anonymous)
        open_to_all = settings is not None and settings.allow_everyone
        if is_anonymous and (may_all or open_to_all) and not is_loopback(listener.host):
            yield (
                f"the controllers' listener {listener} does not authenticate: any host that reaches this port can "
                "raise the quorum's epoch, take the lead from a healthy controller and change the cluster's metadata. "
                "Give it SASL, or TLS with ssl.client.auth=required, and an authorizer; or let only the cluster's own "
                "nodes reach it (docs/security.md)"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine's own processes reach an address."""
    return host not in EVERY_HOST and (host == "localhost" or host == "::1" or host.startswith("127."))


def _clients(config: BrokerConfig, listener: Listener) -> tuple[bool, str]:
    """Whether some may be anonymous, and who clients are."""
    anybody = "any client that can connect" if not is_loopback(listener.host) else "any process of this machine"
    if has_sasl(listener.protocol):
        mechanisms = config.for_listener(listener.name, "sasl.enabled.mechanisms")
        names = ", ".join(map(str, mechanisms)) if isinstance(mechanisms, list) else str(mechanisms)
        return False, f"users who log in by {names}"
    client_auth = config.for_listener(listener.name, "ssl.client.auth") if has_tls(listener.protocol) else "none"
    if client_auth == "required":
        return False, "holders of certificates that its trust store knows"
    if client_auth == "requested":
        return True, f"{anybody}, without a certificate as {ANONYMOUS}"
    return True, f"{anybody}, as {ANONYMOUS}"


def _rights(settings: AuthorizerSettings | None, is_anonymous: bool) -> tuple[bool, str]:
    """Whether each of them may do everything, and what they may do."""
    if settings is None:
        return True, "they may do everything, as authorizer.class.name is not set"
    if is_anonymous and str(ANONYMOUS) in settings.super_users:
        return True, f"ACLs say what they may do, but {ANONYMOUS} is a super user and may do everything"
    if settings.allow_everyone:
        return False, "ACLs say what they may do, and what no ACL is about is open to all"
    return False, "ACLs say what they may do"


def warning_of_nobody(config: BrokerConfig, acls: Iterable[Acl]) -> str | None:
    """What to warn of, where no client may change ACLs, so that they stay as they are for ever."""
    settings = authorizer_settings(config)
    if settings is None or settings.super_users or settings.allow_everyone:
        return None
    for acl in acls:
        may_alter = acl.operation in (ALL, Operation.ALTER) and acl.permission_type == Permission.ALLOW
        if may_alter and acl.resource_type == ResourceKind.CLUSTER:
            return None
    return (
        "an authorizer is set, but no principal may change ACLs: super.users is empty, and no ACL allows ALTER "
        "on the cluster; name yourself in super.users"
    )


def broker_principal(security: ClientSecurity | None) -> Principal | None:
    """The principal by which other brokers know this one; None if only its certificate or token determines it.

    `security`: None at a plain listener.
    """
    if security is None:
        return ANONYMOUS
    if security.authenticates:
        return None if security.login is None or security.login.by_token else Principal("User", security.login.name)
    return ANONYMOUS if security.is_plain else None


def warning_of_brokers(authorizer: Authorizer, principal: Principal, host: str) -> str | None:
    """What to warn of, where other brokers would refuse this one's requests."""
    if authorizer.is_authorized(principal, host, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME):
        return None
    return (
        f"brokers reach each other as {principal}, which is neither one of super.users nor has CLUSTER_ACTION by ACLs: "
        "they will refuse each other's requests, and replicas will not follow; add it to super.users, or run "
        f"`kbroker acls add --cluster --operation cluster-action --allow-principal {principal}`"
    )
