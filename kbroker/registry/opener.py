"""What asks web addresses that settings name: redirects are not followed, as credentials would go along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.authorities import trusting

if TYPE_CHECKING:
    import urllib.request


def direct_opener(ca_file: str = "") -> urllib.request.OpenerDirector:
    """`ca_file`: a PEM of the authorities that are trusted, the system's without.  OSError for one that cannot be read.

    It waits when it is used, and is for one thread at a time."""
    # A broker that asks no registry does without these modules.
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    return urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=trusting(ca_file)))
