"""Decides which requests the console answers: those of its own pages in a browser, and of programs other than browsers.

Where viewers do not prove who they are, another web page, open in the browser of a person who can reach the listener,
must not be able to make requests as the console:

- a page whose name was made to lead to the broker's address (DNS rebinding) says that name in `Host`
  (`metrics.http_guard`);
- a page of another origin is named by `Origin` or by `Sec-Fetch-Site`, and nothing allows it to read an answer (no
  CORS headers).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from kbroker.metrics.http_guard import host_name, is_local_name
from kbroker.metrics.http_messages import Request

PUBLISHED = "published"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_OWN = frozenset({"", "same-origin", "none"})


def foreign(request: Request) -> bool:
    """Whether a page of another origin asks."""
    if request.fetch_site not in _OWN:
        return True
    try:
        return bool(request.origin) and urlsplit(request.origin).netloc.lower() != request.host.lower()
    except ValueError:
        return True


def why_no_messages(policy: str, listener_host: str, *, has_authorizer: bool, knows_viewers: bool = False) -> str:
    """Why records are not shown, as a sentence; empty where they are, or where it depends on the viewer.

    `policy`: `kbroker.console.messages`; `knows_viewers`: whether viewers prove who they are.
    """
    if policy == "never":
        return "Records are not shown: kbroker.console.messages is never."
    if knows_viewers:
        return ""
    if has_authorizer:
        return "Records are not shown: the broker has an authorizer, which the console could not ask."
    if policy == "loopback" and not is_loopback(listener_host):
        return (
            f"Records are not shown: {listener_host} can be reached from other machines, and the listener knows no "
            "users. kbroker.console.messages=always shows them to everybody who reaches it, published, in a container "
            "whose port is published to 127.0.0.1, to viewers on this machine."
        )
    return ""


def why_no_changes(listener_host: str, *, has_authorizer: bool, knows_viewers: bool) -> str:
    """Why viewers who prove nothing can change nothing, as a sentence; empty where they can."""
    if knows_viewers:
        return "Nothing can be changed without a login."
    if has_authorizer:
        return "Nothing can be changed here: the broker has an authorizer, and the listener knows no users."
    if not is_loopback(listener_host):
        return (
            f"Nothing can be changed here: {listener_host} can be reached from other machines, and the listener knows "
            "no users. kbroker.metrics.authentication says who they are."
        )
    return ""


def why_not_to(request: Request, gateways: Collection[str]) -> str:
    """The same for one viewer where the policy is `published`: the listener's port is published to this machine alone.

    Such a viewer comes from loopback, or, in a container, from the engine's own address (`gateways`), and has dialled
    a name or an address of loopback.  Other containers of the network have addresses of their own."""
    peer = request.peer.removeprefix("::ffff:")
    dialled = host_name(request.host) or ""
    if (is_loopback(peer) or peer in gateways) and is_loopback(dialled):
        return ""
    return (
        f"Records are not shown to {peer}, which dialled {dialled or 'nothing'}: kbroker.console.messages=published "
        "shows them to viewers on the container's own machine, by http://localhost and a port that is published to "
        "127.0.0.1."
    )


def is_loopback(host: str) -> bool:
    """Whether a listener with this address is reached from the same machine alone."""
    if is_local_name(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
