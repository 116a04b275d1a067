"""The levels of features in Kafka's releases, with which a cluster begins.  Of `kbroker.metadata.release_levels`."""

from __future__ import annotations

import pytest

from kbroker.metadata.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from kbroker.metadata.release_levels import NEWEST, RELEASES, LevelError, default_levels, first_levels


def test_the_table_is_that_of_the_features() -> None:
    """A new cluster would begin with a level that brokers do not serve."""
    assert default_levels() == {each.name: each.default_level for each in FEATURES}
    oldest, newest = (getattr(FEATURES[0], name) for name in ("min_level", "max_level"))
    assert (min(RELEASES), NEWEST) == (oldest, newest)


def test_a_cluster_begins_with_the_levels_of_each_release() -> None:
    """Features of a later release would stop the brokers of the release that was named."""
    for level in RELEASES:
        found = first_levels(None, {METADATA_VERSION: level}, is_dynamic=True)
        assert found == {**default_levels(level), KRAFT_VERSION: 1}
        assert first_levels(RELEASES[level], {}, is_dynamic=False) == {**found, KRAFT_VERSION: 0}
        with pytest.raises(LevelError, match="avoid ambiguity"):
            first_levels("4.3", {METADATA_VERSION: level}, is_dynamic=True)
