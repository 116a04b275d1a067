"""Levels of features change as Kafka's controller changes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import InvalidUpdateVersionError
from kbroker.metadata.features import (
    FEATURES,
    Feature,
    Features,
    FeatureUpdate,
    UpgradeType,
    served_features,
    update_features,
)

TABLE = (Feature("metadata.version", 7, 30, 30), Feature("some.version", 0, 2, 2), Feature("off.version", 0, 0, 0))


def test_levels_stay_within_what_is_served() -> None:
    """A client would speak a protocol that this broker does not serve, after a level was stored by a newer one."""
    assert Features(chosen={"some.version": 9}, table=TABLE).level("some.version") == 2
    assert Features(chosen={"off.version": 1}, table=TABLE).level("off.version") == 0
    assert Features(table=TABLE).levels() == {"metadata.version": 30, "some.version": 2}


def test_the_table_is_in_order() -> None:
    """A new cluster would begin at a level that is not served."""
    for row in FEATURES:
        assert 0 <= row.min_level <= row.default_level <= row.max_level
    assert len({row.name for row in FEATURES}) == len(FEATURES)
    assert "metadata.version" in served_features()


@given(
    st.integers(0, 2),
    st.lists(
        st.builds(
            FeatureUpdate,
            st.sampled_from(["some.version", "metadata.version", "off.version", "none.such"]),
            st.integers(-1, 31),
            st.integers(0, 4),
        ),
        max_size=4,
    ),
)
def test_a_request_changes_all_or_nothing(level: int, updates: list[FeatureUpdate]) -> None:
    """A refused request would leave half of its levels changed, or an epoch would not tell clients of a change."""
    before = Features(5, {"some.version": level}, TABLE)
    try:
        after = update_features(before, updates, 1)
    except InvalidUpdateVersionError:
        return
    assert (after.epoch > before.epoch) == (after is not before)
    for update in updates:
        row = served_features(TABLE)[update.name]
        assert row.min_level <= update.level <= row.max_level
        assert (update.level >= before.level(update.name)) or update.upgrade_type != UpgradeType.UPGRADE
    last = {update.name: update.level for update in updates}
    assert {name: after.level(name) for name in last} == last


@pytest.mark.parametrize(("level", "kind"), [(1, UpgradeType.SAFE_DOWNGRADE), (0, UpgradeType.UNSAFE_DOWNGRADE)])
def test_a_level_goes_down_only_when_that_is_said(level: int, kind: UpgradeType) -> None:
    """A client's protocol would be taken from under it by mistake."""
    before = Features(table=TABLE)
    with pytest.raises(InvalidUpdateVersionError, match="Can't downgrade the version"):
        update_features(before, [FeatureUpdate("some.version", level)], 1)
    assert update_features(before, [FeatureUpdate("some.version", level, kind)], 1).level("some.version") == level
