"""`kbroker replay --create-topics` where topics are there already.  Also of `kbroker.cli.spark.replay`."""

from __future__ import annotations

from kbroker.cli.spark.replay import kept_as_they_were


def test_a_topic_with_fewer_partitions_than_wanted_is_named_and_others_are_not() -> None:
    """A run over two partitions would be compared with one over six."""
    offsets = {"old": {"0": 5, "1": 7}, "made": {str(number): 0 for number in range(6)}}
    (text,) = kept_as_they_were({"starting_offsets": offsets}, 6)
    assert text.startswith("topic old was there already, with 2 partitions: --create-topics 6")
    assert kept_as_they_were({"starting_offsets": offsets}, None) == []
