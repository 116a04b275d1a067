"""Names of subjects as Java writes them, and principals by `ssl.principal.mapping.rules`.

The rules and what comes of them are the vectors of Kafka's own `SslPrincipalMapperTest`.  Of
`kbroker.security.tls.distinguished_name` and `kbroker.security.tls.principal_mapping`.
"""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.tls.distinguished_name import java_name
from kbroker.security.tls.principal_mapping import PrincipalMapping
from kbroker.security.tls.settings import TlsError
from tests.security.tls.authority import name

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(subject: str, expected: str) -> None:
    """ACLs of a cluster of Kafka would be about other principals."""
    assert PrincipalMapping(RULES).name_of(subject) == expected


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("", "CN=x", None),
        ("DEFAULT", "CN=x", "CN=x"),
        ("RULE:^CN=(.*)$/$1/", "CN=Duke", "Duke"),
        ("RULE:^CN=(.*)$/$1/", "OU=Duke", None),
        (r"RULE:^CN=([^,]+),.*$/$1/,DEFAULT", "CN=a/b,O=c", "a/b"),
        (r"RULE:^CN=(.*)\/(.*)$/$1-$2/", "CN=a/b", "a-b"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        ("RULE:^CN=(.*)$/$10/", "CN=a", "a0"),
        ("RULE:^CN=(.*)$/$5/", "CN=a", "$5"),
        ("RULE:^CN=(.*)$/$1/", "CN=a\r", None),
        (r"RULE:^CN=(\w)$/$1/,DEFAULT", "CN=é", "CN=é"),
        (r"RULE:^CN=([.a]\.x)$/$1/", "CN=..x", "..x"),
        ("RULE:^CN=([a-z&&[^b]]+)$/$1/,DEFAULT", "CN=alice", "alice"),
        ("RULE:^CN=([a-z&&[^b]]+)$/$1/,DEFAULT", "CN=bob", "CN=bob"),
        (r"RULE:^CN=(?<n>\p{L}+),\QO=a.b\E$/$1/", "CN=é,O=a.b", "é"),
        (r"RULE:^CN=(\p{Alpha}+)$/$1/,DEFAULT", "CN=é", "CN=é"),
        ("RULE:^CN=((((((((((a))))))))))$/$10/", "CN=a", "a"),
    ],
)
def test_rules_replace_as_java_does(rules: str, subject: str, expected: str | None) -> None:
    """The same rule would make another name than with Kafka."""
    assert PrincipalMapping(rules).name_of(subject) == expected


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=((.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*)$/$/",
    ],
)
def test_a_rule_that_is_none_is_refused(rules: str) -> None:
    """It would be left out, and another rule name the client."""
    with pytest.raises(TlsError, match="Invalid rule"):
        PrincipalMapping(rules)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("C", "US"), ("O", "Org"), ("OU", "ServiceUsers"), ("CN", "Duke")], "CN=Duke,OU=ServiceUsers,O=Org,C=US"),
        ([("CN", 'a,b+c=d<e>f#g;h\\i"j')], r"CN=a\,b\+c\=d\<e\>f\#g\;h\\i\"j"),
        ([("CN", " a  b ")], r"CN=\ a  b\ "),
        ([("CN", "Žofie")], "CN=Žofie"),
        ([("CN", "x\ny")], "CN=x\ny"),
        ([("E", "a@b"), ("CN", "x")], "CN=x,1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_names_of_subjects_are_written_as_java_writes_them(parts: list[tuple[str, str]], expected: str) -> None:
    """A principal would have another name than with Kafka, and so other rights."""
    assert java_name(name(*parts).public_bytes()) == expected


def test_parts_of_several_values_are_joined() -> None:
    """Two values of one part would be told from two parts by nothing."""
    several = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(NameOID.COMMON_NAME, "x"), x509.NameAttribute(NameOID.USER_ID, "7")]
            ),
        ]
    )
    assert sorted(java_name(several.public_bytes()).split("+")) == [
        "CN=x",
        "UID=7",
    ]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_name_or_refused(encoded: bytes) -> None:
    """A hostile certificate would end the connection with another error than one that is expected."""
    try:
        java_name(encoded)
    except ValueError:
        pass
