"""Decisions over random rules, against what Kafka's own authorizer decided.

Also of `kbroker.security.acl.index`, `kbroker.security.acl.standard_authorizer`, `kbroker.security.acl.settings`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbroker.metadata.security_image import Acl
from kbroker.security.acl.kinds import PatternType, Permission
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal
from tests.security.acl.decisions import FILE, answers_of_kafka, answers_of_kbroker, java, random_case

RECORDED: list[str] = json.loads(FILE.read_text())
MANY = 100_000
AT_A_TIME = 20_000


def test_decisions_are_those_of_kafkas_authorizer() -> None:
    """A client would be let in where Kafka's rules keep it out, or the other way round."""
    for seed, recorded in enumerate(RECORDED):
        assert answers_of_kbroker(random_case(seed)) == recorded, seed
    assert len(RECORDED) == 4_000


def test_the_cases_have_denials_and_permissions_of_every_kind() -> None:
    """Equal answers would prove little."""
    letters = "".join(RECORDED)
    assert 0.1 < letters.count("a") / len(letters) < 0.9
    cases = [random_case(seed) for seed in range(len(RECORDED))]
    kinds = [
        lambda case: case.allow_everyone,
        lambda case: case.super_users,
        lambda case: any(each[4] is None for each in case.questions),
        lambda case: any(acl.pattern_type == 4 and acl.permission_type == 2 for acl in case.acls),
    ]
    assert all(sum(1 for case in cases if kind(case)) > 100 for kind in kinds)


@pytest.mark.parametrize("of_zookeeper", [False, True], ids=["Kafka 4", "ZooKeeper"])
def test_a_user_who_bears_the_name_for_everyone_gets_what_kafka_gives(of_zookeeper: bool) -> None:
    """A user could choose the one name that every rule for everyone is about, and use what Kafka keeps from it."""
    rule = Acl(ResourceKind.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.WRITE, Permission.ALLOW)
    named, other = Principal("User", "*"), Principal("User", "x*")
    for settings, rules in ((AuthorizerSettings(), [rule]), (AuthorizerSettings(allow_everyone=True), [])):
        authorizer = StandardAuthorizer(replace(settings, allows_unless_denied=of_zookeeper), rules)
        for principal, allowed in ((named, of_zookeeper), (other, True)):
            question = (principal, "10.0.0.1", Operation.WRITE, ResourceKind.TOPIC)
            assert authorizer.is_authorized(*question, "t") is allowed
            assert authorizer.is_authorized_for_any(*question) is allowed
            assert (authorizer.explain(*question, "t") == "DefaultDeny") is not allowed
    trusted = StandardAuthorizer(AuthorizerSettings(super_users=frozenset({"User:*"})))
    assert trusted.is_authorized(named, "10.0.0.1", Operation.WRITE, ResourceKind.TOPIC, "t")
    assert not trusted.is_authorized(other, "10.0.0.1", Operation.WRITE, ResourceKind.TOPIC, "t")


@pytest.mark.kafka
@pytest.mark.slow
def test_kafkas_authorizer_and_kbrokers_decide_alike_a_hundred_thousand_times() -> None:
    """The recorded cases may miss a combination of rules."""
    for first in range(0, MANY, AT_A_TIME):
        cases = [random_case(seed) for seed in range(first, first + AT_A_TIME)]
        answers = answers_of_kafka(cases, java())
        assert len(answers) == len(cases)
        for seed, (case, answer) in enumerate(zip(cases, answers, strict=True), first):
            assert answers_of_kbroker(case) == answer, seed
