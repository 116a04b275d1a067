"""The settings that name an authorizer and those whom it lets do everything.

`super.users` are principals between semicolons, as the names of certificates have commas.
"""

from __future__ import annotations

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OF_ZOOKEEPER = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def principals_of(text: str) -> list[str]:
    """The principals that a text names, as in `User:alice;User:CN=b,O=c`.  ValueError in Kafka's words."""
    found = [part for each in text.split(";") if (part := each.strip())]
    for each in found:
        if ":" not in each:
            raise ValueError(f"expected a string in format principalType:principalName but got {each}")
    return found
