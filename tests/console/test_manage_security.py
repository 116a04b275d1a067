"""Quotas, users and ACLs from the console, and what users may do there: no more than as clients.

Also of `kbroker.console.manage.acls`, `kbroker.console.manage.quotas`, `kbroker.console.manage.users`,
`kbroker.console.security`, `kbroker.security.sasl.plain_logins`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from kbroker.testing.security import PASSWORD, Security
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer

ACL = {"kind": "TOPIC", "name": "app-", "pattern": "PREFIXED", "principal": "User:bob", "operation": "ALL"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with ACLs, whose super user `admin` logs in by PLAIN."""
    settings = {
        "kbroker.console.manage": "true",
        "kbroker.metrics.authentication": "basic",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    }
    directory = tmp_path_factory.mktemp("secured")
    with BrokerProcess(directory, settings, security=Security("SASL_PLAINTEXT")) as started:
        yield started


@pytest.fixture
def admin(broker: BrokerProcess) -> Viewer:
    return Viewer(broker.metrics_port, f"admin:{PASSWORD}")


@pytest.fixture
def bob(broker: BrokerProcess, admin: Viewer) -> Viewer:
    """A user without rights but those that a test gives."""
    admin.do("user.password", name="bob", secret="builder")
    return Viewer(broker.metrics_port, "bob:builder")


def test_users_get_passwords_and_lose_them(broker: BrokerProcess, admin: Viewer) -> None:
    """Users would need a command on a machine that may reach the broker."""
    plan = admin.plan("user.password", name="carol", mechanism="SCRAM-SHA-512", secret="old one")
    assert plan["title"] == "Set the password of carol" and "old one" not in str(plan)
    assert plan["warnings"] == ["carol has no rights until ACLs give some."]
    done = admin.perform(plan, "old one")
    assert done["sentences"] == ["The user carol logs in with SCRAM-SHA-512."]
    settings = broker.client_settings() | {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "carol",
        "sasl.password": "old one",
    }
    consumer = Consumer({**settings, "group.id": "x"})
    assert consumer.list_topics(timeout=30).topics == {}
    consumer.close()
    assert [row["mechanism"] for row in admin.ask("users", q="carol")["rows"]] == ["SCRAM-SHA-512"]
    assert "salt" not in str(admin.ask("users"))
    assert Viewer(broker.metrics_port, "carol:old one").ask("me")["principal"] == "User:carol"
    admin.do("user.password", name="carol", secret="new one")
    assert Viewer(broker.metrics_port, "carol:old one").get("/console/api/me").status == 401
    plan = admin.plan("user.remove", name="carol")
    assert plan["confirm"] == "carol"
    admin.perform(plan)
    assert admin.ask("users", q="carol")["rows"] == []
    assert Viewer(broker.metrics_port, "carol:new one").get("/console/api/me").status == 401
    assert admin.cannot("user.remove", name="carol")[0] == 404
    assert admin.cannot("user.password", name="carol")[2] == "the password is missing"
    assert admin.cannot("user.password", name="c", mechanism="MD5", secret="x")[0] == 400
    itself = Viewer(broker.metrics_port, "admin:by scram")
    admin.do("user.password", name="admin", mechanism="SCRAM-SHA-256", secret="by scram")
    assert "This is you" in itself.plan("user.remove", name="admin")["warnings"][0]
    assert Viewer(broker.metrics_port, "admin:").get("/console/api/me").status == 401
    assert "old one" not in broker.output() and "new one" not in broker.output()


def test_users_change_what_their_acls_let_them_and_nothing_else(admin: Viewer, bob: Viewer) -> None:
    """The console would be a way around the ACLs."""
    assert bob.ask("me")["may_manage"]
    status, code, _ = bob.cannot("topic.create", name="app-1")
    assert (status, code) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert bob.cannot("user.password", name="bob", secret="x")[0] == 403
    assert bob.cannot("acl.add", **ACL)[0] == 403
    assert bob.cannot("quota.change", entity=[{"type": "user", "name": "bob"}], producer_byte_rate=1)[0] == 403
    assert bob.cannot("broker.configure", set={"log.cleaner.threads": "2"})[0] == 403
    for name in ("users", "acls", "quotas"):
        assert bob.refused(name)[0] == 403
    plan = admin.plan("acl.add", **ACL)
    assert plan["sentences"] == ["User:bob may do anything to the topics whose names begin with app-."]
    admin.perform(plan)
    bob.do("topic.create", name="app-1")
    bob.do("produce", topic="app-1", records=[{"value": "x"}])
    assert bob.cannot("topic.create", name="other")[0] == 403
    admin.do("topic.create", name="other")
    for action, fields in (
        ("topic.delete", {}),
        ("topic.truncate", {}),
        ("topic.configure", {"set": {"retention.ms": "1"}}),
        ("topic.partitions", {"count": 2}),
    ):
        assert bob.cannot(action, name="other", **fields)[0] in (403, 404)
    assert bob.cannot("produce", topic="other", records=[{"value": "x"}])[0] == 404
    assert bob.cannot("group.reset", id="some", topic="app-1")[0] == 403
    assert bob.cannot("group.delete", id="some")[0] == 403
    bob.do("topic.delete", name="app-1")
    (row,) = admin.ask("acls", q="bob")["page"]["rows"]
    assert (row["principal"], row["pattern"], row["permission"]) == ("User:bob", "PREFIXED", "ALLOW")
    plan = admin.plan("acl.remove", **row)
    assert plan["sentences"][0].startswith("This is no longer allowed: User:bob may do anything")
    admin.perform(plan)
    assert bob.cannot("topic.create", name="app-1")[0] == 403
    assert admin.cannot("acl.remove", **row)[0] == 404


def test_rights_that_end_between_plan_and_deed_end_the_deed(admin: Viewer, bob: Viewer) -> None:
    """Who has lost a right could still use it with a page that is open."""
    admin.do("acl.add", **ACL)
    plan = bob.plan("topic.create", name="app-late")
    admin.do("acl.remove", **{**ACL, "permission": "ALLOW"})
    assert bob.post("perform", plan).status == 403
    # Nor can another user do what was shown to somebody else.
    assert admin.post("perform", plan).status == 409
    assert admin.cannot("topic.delete", name="app-late")[0] == 404


def test_what_is_no_acl_is_said(admin: Viewer) -> None:
    """A person would add a rule that means nothing."""
    assert admin.cannot("acl.add", **{**ACL, "principal": "bob"})[0] == 400
    assert admin.cannot("acl.add", **{**ACL, "kind": "PLANET"})[0] == 400
    assert admin.cannot("acl.add", **{**ACL, "operation": "EAT"})[0] == 400
    plan = admin.plan(
        "acl.add", kind="CLUSTER", principal="User:*", operation="DESCRIBE", permission="DENY", host="::1"
    )
    assert plan["sentences"] == ["Everybody from ::1 may not DESCRIBE the cluster."]
    assert plan["warnings"] == ["A denial wins over all that allows."]


def test_quotas_are_changed_for_an_entity(admin: Viewer) -> None:
    """A client that takes all could not be held back from the page that shows it."""
    entity = [{"type": "user", "name": "bob"}, {"type": "client-id", "name": None}]
    plan = admin.plan("quota.change", entity=entity, producer_byte_rate=1024, request_percentage="12.5")
    assert plan["title"] == "Change quotas of each client-id without its own, user bob"
    assert plan["table"]["rows"] == [["producer_byte_rate", "none", "1024"], ["request_percentage", "none", "12.5"]]
    admin.perform(plan)
    rows = admin.ask("quotas", q="bob")["rows"]
    assert {row["key"]: row["value"] for row in rows} == {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert rows[0]["parts"] == [["client-id", None], ["user", "bob"]]
    admin.do("quota.change", entity=entity, producer_byte_rate=None, request_percentage="")
    assert admin.ask("quotas", q="bob")["rows"] == []
    assert admin.cannot("quota.change", entity=entity, producer_byte_rate=-1)[0] == 400
    assert admin.cannot("quota.change", entity=entity)[2] == "no quota is named"
    assert admin.cannot("quota.change", entity=[], producer_byte_rate=1)[0] == 400
    assert admin.cannot("quota.change", entity=[{"type": "ip", "name": "10.0.0.1"}], producer_byte_rate=1)[0] == 400


def test_without_a_proof_nothing_is_shown_or_changed(broker: BrokerProcess) -> None:
    """Everybody who reaches the listener could see and change the cluster."""
    nobody = Viewer(broker.metrics_port)
    assert nobody.get("/console/api/me").status == 401
    assert nobody.post("plan", {"action": "topic.create", "fields": {"name": "x"}}).status == 401


def test_a_broker_without_an_authorizer_says_that_acls_mean_nothing(viewer: Viewer) -> None:
    """A person would trust in rules that nobody asks for."""
    assert viewer.cannot("acl.add", **ACL)[1] == "SECURITY_DISABLED"
    assert viewer.ask("acls")["is_in_force"] is False


def test_secrets_are_not_set_in_a_browser(admin: Viewer) -> None:
    """A key's password would stand in the page, its history and its plan."""
    status, _, error = admin.cannot("broker.configure", name="1", set={"listener.name.x.ssl.key.password": "hush"})
    assert status == 400 and "hush" not in error


def test_quotas_hold_for_what_the_console_does(admin: Viewer, bob: Viewer) -> None:
    """A user whom a quota holds back could go around it by the console."""
    entity = [{"type": "user", "name": "bob"}]
    admin.do("acl.add", **ACL)
    admin.do("topic.create", name="app-slow")
    admin.do("quota.change", entity=entity, producer_byte_rate=1000)
    bob.do("produce", topic="app-slow", records=[{"value": "x" * 100_000}])
    text = admin.get("/metrics").body.decode()
    counted = [line for line in text.splitlines() if line.startswith("kbroker_quota_throttles_total{")]
    assert any('user="bob"' in line and not line.endswith(" 0.0") for line in counted), counted
    admin.do("quota.change", entity=entity, producer_byte_rate=None)
    admin.do("topic.delete", name="app-slow")
    admin.do("acl.remove", **{**ACL, "permission": "ALLOW"})
