"""ACLs, credentials and tokens: images and their deltas, the store's tables, KRaft records, what a controller changes.

Also of `kbroker.metadata.security_rows`, `kbroker.metadata.security_records`.
"""

from __future__ import annotations

import pickle
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.workers.messages import Call, Change, decode, encode
from kbroker.config import BrokerConfig
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.metadata_record import metadata_record
from kbroker.metadata.record_deltas import delta_of
from kbroker.metadata.security_image import (
    Acl,
    DelegationToken,
    ScramCredential,
    ScramKey,
    SecurityDelta,
    SecurityImage,
)
from kbroker.metadata.security_records import records_of
from kbroker.metadata.store import CorruptMetadataError
from kbroker.schemas import wire
from tests.cluster.parts import Metadata
from tests.unbroken import finished

INT8, TIME = st.integers(0, 127), st.integers(0, 2**62)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
ACLS = st.builds(Acl, INT8, NAMES, INT8, NAMES, NAMES, INT8, INT8)
CREDENTIALS = st.builds(
    ScramCredential, st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8), st.integers(1, 16384)
)
TOKENS = st.builds(DelegationToken, st.just(""), NAMES, NAMES, st.lists(NAMES).map(tuple), TIME, TIME, TIME)


@st.composite
def images(draw: st.DrawFn) -> SecurityImage:
    tokens = draw(st.dictionaries(NAMES, TOKENS, max_size=3))
    return SecurityImage(
        draw(st.dictionaries(st.binary(min_size=16, max_size=16), ACLS, max_size=3)),
        draw(st.dictionaries(st.builds(ScramKey, NAMES, st.sampled_from([1, 2])), CREDENTIALS, max_size=3)),
        {key: DelegationToken(key, *_fields(token)[1:]) for key, token in tokens.items()},
    )


def _fields(token: DelegationToken) -> tuple[Any, ...]:
    return (
        token.token_id,
        token.owner,
        token.requester,
        token.renewers,
        token.issued_ms,
        token.max_ms,
        token.expires_ms,
    )


ACL_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
ACL = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 8192)
TOKEN = DelegationToken("t1", "User:alice", "User:bob", ("User:carol",), 1, 3, 2)
WHOLE = SecurityImage({ACL_ID: ACL}, {ScramKey("alice", 1): CREDENTIAL}, {"t1": TOKEN})


@dataclass(frozen=True)
class AddAcl:
    """A change as a request would make it."""

    acl_id: bytes
    acl: Acl | None

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, int]:
        return SecurityDelta({self.acl_id: self.acl} if image.acls.get(self.acl_id) != self.acl else {}), len(
            image.acls
        )


@settings(max_examples=100, deadline=None)
@given(images(), images())
def test_the_difference_of_two_images_leads_from_one_to_the_other(old: SecurityImage, new: SecurityImage) -> None:
    """A broker would go on with an ACL or a password that has been removed."""
    delta = old.difference(new)
    assert old.apply(delta) == new
    assert delta.is_empty() == (old == new)


@settings(max_examples=50, deadline=None)
@given(images(), images())
def test_the_store_has_what_was_written(old: SecurityImage, new: SecurityImage) -> None:
    """Rights or passwords would change with a restart."""
    store = LocalStore.open(":memory:")
    store.write(MetadataDelta(security=SecurityImage().difference(old)))
    store.write(MetadataDelta(security=old.difference(new)))
    assert store.security() == new
    store.close()


@settings(max_examples=50, deadline=None)
@given(images(), images())
def test_records_make_the_image_that_they_were_made_from(old: SecurityImage, new: SecurityImage) -> None:
    """An export would lose users or rights, or a broker of a KRaft cluster would have others than its controllers."""
    before = ClusterImage.of("c", security=old)
    removals = [
        *(wire.RemoveAccessControlEntryRecord(id=key) for key in old.acls),
        *(wire.RemoveUserScramCredentialRecord(name=key.user, mechanism=key.mechanism) for key in old.scram),
        *(wire.RemoveDelegationTokenRecord(token_id=key) for key in old.tokens),
    ]
    delta = delta_of(before, [metadata_record(value, 0) for value in (*removals, *records_of(new))])
    assert before.apply(delta).security == new


def test_a_change_is_stored_and_published_and_a_restart_has_it(tmp_path: Path) -> None:
    """An ACL would be answered as made and not be in force, or be gone after a restart."""
    path = tmp_path / "metadata.sqlite"
    store = LocalStore.open(path)
    metadata = Metadata(store, BrokerConfig.from_mapping({}), [BrokerImage(1, {})])
    deltas: list[MetadataDelta] = []
    metadata.cache.subscribe(lambda _old, _new, delta: deltas.append(delta))
    controller = metadata.controller
    assert finished(controller.alter_security(AddAcl(ACL_ID, ACL))) == 0
    assert finished(controller.alter_security(AddAcl(ACL_ID, ACL))) == 1
    assert finished(controller.alter_security(AddAcl(OTHER_ID, ACL))) == 1
    assert finished(controller.alter_security(AddAcl(OTHER_ID, None))) == 2
    assert [each.security.acls for each in deltas] == [{ACL_ID: ACL}, {OTHER_ID: ACL}, {OTHER_ID: None}]
    assert metadata.cache.image.security == SecurityImage({ACL_ID: ACL})
    store.close()
    again = LocalStore.open(path)
    assert again.security() == SecurityImage({ACL_ID: ACL})
    again.close()


def test_damaged_renewers_are_named(tmp_path: Path) -> None:
    """A start would fail with a traceback in place of the file and the token."""
    path = tmp_path / "metadata.sqlite"
    store = LocalStore.open(path)
    store.write(MetadataDelta(security=SecurityImage().difference(WHOLE)))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE delegation_tokens SET renewers = '{'")
    connection.close()
    store = LocalStore.open(path)
    with pytest.raises(CorruptMetadataError, match="t1"):
        store.security()
    store.close()


def test_workers_send_changes_and_get_deltas() -> None:
    """ACLs could not be changed through a worker that is not the controller."""
    from kbroker.metadata.security_image import SecurityDelta

    change = Change(MetadataDelta(security=SecurityImage().difference(WHOLE)))
    assert decode(encode(change)[4:]) == change
    call = Call(1, "alter_security", (SecurityDelta(acls={ACL_ID: ACL}),))
    assert decode(encode(call)[4:]) == call


def test_what_prints_an_image_prints_no_key() -> None:
    """Keys made from passwords would stand in logs and errors."""
    text = f"{WHOLE!r} {MetadataDelta(security=SecurityImage().difference(WHOLE))!r}"
    assert "alice" in text
    for secret in (b"salt", b"stored", b"server"):
        assert repr(secret) not in text
    assert pickle.loads(pickle.dumps(WHOLE)) == WHOLE
