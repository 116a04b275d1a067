"""`sasl.kerberos.principal.to.local.rules`, after the cases of Kafka's KerberosNameTest."""

from __future__ import annotations

import pytest

from kbroker.security.sasl.kerberos_names import KerberosNames, KerberosRuleError, NoKerberosNameError

RULES = (
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (RULES, "App.service-name/example.com@REALM.COM", "service-name"),
        (RULES, "App.service-name@REALM.COM", "service-name"),
        (RULES, "user/host@REALM.COM", "user"),
        (["RULE:[1:$1]/L"], "User@REALM.COM", "user"),
        (["RULE:[2:$1](Test.*)s/ABC///L"], "TestABC/host@FOO.COM", "test"),
        (["RULE:[2:$1]/U"], "User/host@REALM.COM", "USER"),
        (["RULE:[1:$1@$0](.*@OTHER\\.COM)s/@.*//"], "alice@OTHER.COM", "alice"),
        (["RULE:[1:$1](a.*)s/a/b/", "DEFAULT"], "aaa@REALM.COM", "baa"),
        (["RULE:[1:$1](a.*)s/a/b/g", "DEFAULT"], "aaa@REALM.COM", "bbb"),
        (["RULE:[1:$1]([a-z&&[^b]]+)s/(.*)/x-$1/", "DEFAULT"], "alice@REALM.COM", "x-alice"),
        (["RULE:[1:$1]([a-z&&[^b]]+)s/(.*)/x-$1/", "DEFAULT"], "bob@REALM.COM", "bob"),
        (["RULE:[2:$2;$1](.*)s/;.*//"], "a/b@REALM.COM", "b"),
    ],
)
def test_the_first_rule_that_applies_names_the_client(rules: list[str], principal: str, name: str) -> None:
    """ACLs of a cluster of Kafka would be about other principals."""
    assert KerberosNames(rules).name_of(principal, "REALM.COM") == name


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "alice@OTHER.COM"),
        (["RULE:[2:$1]"], "alice@REALM.COM"),
        (["RULE:[1:$1@$0]"], "alice@REALM.COM"),
        (["RULE:[1:$1](b.*)"], "alice@REALM.COM"),
        (["DEFAULT"], "a/b/c@REALM.COM"),
        (["DEFAULT"], "@REALM.COM"),
        (["RULE:[1:$1]s/(a|aa)+[b-c]/x/"], "a" * 60 + "@REALM.COM"),
    ],
)
def test_a_principal_without_a_name_is_refused(rules: list[str], principal: str) -> None:
    """It would get the rights of another client, or hold the loop."""
    with pytest.raises(NoKerberosNameError):
        KerberosNames(rules).name_of(principal, "REALM.COM")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAULT/L",
        "RULE:[1:$1",
        "RULE:[1:$2]",
        "RULE:[1:$x]",
        "RULE:[1:$1](*)",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]/g",
        "RULE:[1:$1]/L/U",
        "rule:[1:$1]",
    ],
)
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    """It would be left out, and another rule name the client."""
    with pytest.raises(KerberosRuleError, match="Invalid rule"):
        KerberosNames([rule])
