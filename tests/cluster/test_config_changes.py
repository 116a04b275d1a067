"""What operations of IncrementalAlterConfigs make of settings.

Also of `kbroker.cluster.resource_configs`, `kbroker.config.origin`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cluster.config_changes import apply_edits
from kbroker.cluster.requests import ConfigEdit, EditOperation

names = st.sampled_from(["a", "b", "c"])
values = st.lists(st.sampled_from("wxyz"), max_size=4).map(",".join)
settings = st.dictionaries(names, values)


def items(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


@given(settings, names, st.sampled_from(EditOperation), values, values)
def test_one_operation_changes_one_setting(
    own: dict[str, str], name: str, operation: EditOperation, value: str, default: str
) -> None:
    """A change of one setting would touch another, or lose or double items of a list."""
    before = dict(own)
    changed = apply_edits(own, [ConfigEdit(name, operation, value)], lambda _: default)
    assert own == before
    assert {key: changed.get(key) for key in "abc" if key != name} == {
        key: own.get(key) for key in "abc" if key != name
    }
    start = items(own.get(name, default))
    if operation is EditOperation.SET:
        assert changed[name] == value
    elif operation is EditOperation.DELETE:
        assert name not in changed
    elif operation is EditOperation.APPEND:
        assert items(changed[name])[: len(start)] == start
        assert set(items(changed[name])) == set(start) | set(items(value))
        assert len(items(changed[name])) == len(start) + len(set(items(value)) - set(start))
    else:
        assert items(changed[name]) == [item for item in start if item not in items(value)]


def test_blanks_around_items_do_not_count() -> None:
    """`compact, delete` would not be the list that it looks like."""
    edits = [ConfigEdit("p", EditOperation.APPEND, " y , z"), ConfigEdit("q", EditOperation.SUBTRACT, " x ")]
    assert apply_edits({"p": "x, y", "q": "x,y"}, edits, lambda _: "") == {"p": "x,y,z", "q": "y"}
