"""Who may change something from the console, and from where.

Also of `kbroker.console.manage.change_requests`, `kbroker.console.manage.plan`, `kbroker.console.manage.fields`,
`kbroker.console.viewer_client`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.console.guard import why_no_changes
from kbroker.console.manage.change_requests import LARGE_BODY_BYTES, SMALL_BODY_BYTES
from kbroker.console.manage.fields import Fields
from kbroker.console.parameters import BadParameterError
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer

CREATE = {"action": "topic.create", "fields": {"name": "unwanted"}}


def test_other_pages_cannot_ask_for_changes(viewer: Viewer) -> None:
    """Any page that is open in the browser of a person who may delete topics could delete them."""
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"X_Kbroker_Console": ""}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://["}, 403),
        ({"Host": "evil.example"}, 421),
    ):
        assert viewer.post("plan", CREATE, **headers).status == status, headers
    assert viewer.get("/console/api/plan").status == 405
    assert viewer.send("POST", "/console/api/topics", b"{}", Content_Type="application/json").status == 405
    assert viewer.send("POST", "/console/app.js", b"{}").status == 405
    assert viewer.send("POST", "/metrics", b"{}").status == 413
    assert viewer.refused("topic", name="unwanted")[0] == 404


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"action": "topic.create", "fields": 7}', b"[" * 9999])
def test_bodies_that_are_no_action_are_refused(viewer: Viewer, body: bytes) -> None:
    """A body could end in an error of Python."""
    answer = (
        viewer.send(
            "POST",
            "/console/api/plan",
            body,
            Content_Type="application/json",
            X_Kbroker_Console="1",
            Content_Length="0",
        )
        if not body
        else viewer.send("POST", "/console/api/plan", body, Content_Type="application/json", X_Kbroker_Console="1")
    )
    assert answer.status == 400 and answer.value["error"]


@pytest.mark.parametrize("text", [rb'"\ud800"', b'"\xed\xa0\x80"', rb'"\uDFFF\ud83d"'])
@pytest.mark.parametrize("place", [b'"secret": %s, "fields": {"name": "u"}', b'"fields": {"name": %s}'])
def test_half_a_surrogate_pair_in_a_body_is_refused(viewer: Viewer, text: bytes, place: bytes) -> None:
    """A name or a password that no request can carry ended in an error of Python, after the plan had been shown."""
    body = b'{"action": "user.password", ' + place % text + b"}"
    answer = viewer.send("POST", "/console/api/plan", body, Content_Type="application/json", X_Kbroker_Console="1")
    assert answer.status == 400 and answer.value["error"].startswith("the body ")


def test_whole_surrogate_pairs_are_text(viewer: Viewer) -> None:
    """Programs write what is beyond 16 bits as a pair of escapes."""
    body = rb'{"action": "user.password", "secret": "x", "fields": {"name": "\ud83d\ude00"}}'
    answer = viewer.send("POST", "/console/api/plan", body, Content_Type="application/json", X_Kbroker_Console="1")
    assert answer.status == 200 and answer.value["fields"]["name"] == "\N{GRINNING FACE}"


def test_a_number_beyond_all_floats_is_no_limit() -> None:
    """A quota of five hundred digits ended in an error of Python."""
    with pytest.raises(BadParameterError, match="must be a number"):
        Fields({"rate": 10**500}).real("rate")


@pytest.mark.parametrize("step", ["plan", "perform"])
def test_a_body_that_is_too_large_is_not_read(viewer: Viewer, step: str) -> None:
    """Anybody could fill the broker's memory, or hold its loop with megabytes for an action that takes a name."""
    for path, most in ((step, SMALL_BODY_BYTES), (f"{step}/produce", LARGE_BODY_BYTES)):
        answer = viewer.send("POST", f"/console/api/{path}", b"{}", Content_Length=str(most + 1))
        assert answer.status == 413
    told = viewer.post(f"{step}/produce", CREATE)
    assert told.status == 400 and "for the action produce alone" in told.value["error"]
    assert viewer.post(f"{step}/topic.create", CREATE).status == 404


def test_what_is_done_is_what_was_shown(viewer: Viewer) -> None:
    """A page with an error, or one that was changed on the way, would do something else than a person has agreed to."""
    plan = viewer.plan("topic.create", name="shown", partitions=1)
    assert viewer.post("perform", {**plan, "fields": {**plan["fields"], "partitions": 2}}).status == 409
    assert viewer.post("perform", {**plan, "token": "0" * 64}).status == 409
    assert viewer.post("perform", {**plan, "token": None}).status == 409
    assert viewer.post("perform", {**plan, "action": "topic.delete"}).status == 404
    assert viewer.refused("topic", name="shown")[0] == 404


def test_a_viewer_cannot_say_where_it_is(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """ACLs of addresses, and the log, would go by what anybody claims."""
    viewer.proof = {"X-Kbroker-Client": "10.9.9.9"}
    try:
        viewer.do("topic.create", name="from-here")
    finally:
        viewer.proof = {}
    assert "at 127.0.0.1: Create the topic from-here" in console_broker.output()


def test_a_viewer_is_told_what_it_may(viewer: Viewer) -> None:
    """The pages would show buttons that lead nowhere, or none."""
    told = viewer.ask("me")
    assert (told["principal"], told["may_manage"], told["why_not"]) == ("User:ANONYMOUS", True, "")
    assert told["rights"] == ["DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "ALTER_CONFIGS", "CREATE"]
    assert told["hidden_pages"] == ["schemas"] and told["may_create_topics"]
    assert told["links"] == [{"name": "Berlin", "address": "https://berlin.example/console/"}]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """A console as it is where nothing was set."""
    with BrokerProcess(tmp_path_factory.mktemp("reader")) as broker:
        yield Viewer(broker.metrics_port)


def test_nothing_can_be_changed_unless_a_setting_says_so(reader: Viewer) -> None:
    """An upgrade would let everybody on the machine delete topics with a click."""
    assert reader.post("plan", CREATE).status == 413
    told = reader.ask("me")
    assert not told["may_manage"] and "kbroker.console.manage" in told["why_not"]


def test_nobody_changes_anything_without_a_proof_from_elsewhere() -> None:
    """Everybody who reaches the listener could change the cluster."""
    assert why_no_changes("127.0.0.1", has_authorizer=False, knows_viewers=False) == ""
    assert "0.0.0.0" in why_no_changes("0.0.0.0", has_authorizer=False, knows_viewers=False)
    assert "authorizer" in why_no_changes("127.0.0.1", has_authorizer=True, knows_viewers=False)
    assert "without a login" in why_no_changes("127.0.0.1", has_authorizer=False, knows_viewers=True)
