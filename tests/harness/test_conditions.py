"""Values that conditions allow: exact ones, bounds of numbers, and the absence of a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_compat.conditions import Value, allows, common, in_words, is_bound, within

NUMBERS = (0, 0.5, 1, 2, 2.5, 3, 8)
BOUNDS = st.builds(
    lambda parts: ",".join(parts),
    st.lists(
        st.builds("{}{}".format, st.sampled_from((">", ">=", "<", "<=")), st.sampled_from(NUMBERS)),
        min_size=1,
        max_size=3,
    ),
)
VALUES = st.one_of(BOUNDS, st.sampled_from((*NUMBERS, True, False, None, "cpu", "none")))
SINGLE = (*NUMBERS, -1, 1.5, 100, True, False, None, "cpu", "none", "")


@pytest.mark.parametrize(
    ("allowed", "value", "meets"),
    [
        ((">=3",), 3, True),
        ((">=3",), 2, False),
        ((">0,<1.5",), 1.0, True),
        ((">0,<1.5",), 1.5, False),
        ((">=1",), True, False),  # a switch is no number
        ((1,), True, False),
        ((1,), 1.0, True),
        ((None,), None, True),
        ((None,), "auto", False),
        ((">=3",), None, False),
        (("cpu", ">=3"), "cpu", True),
    ],
)
def test_a_value_is_allowed(allowed: tuple[Value, ...], value: Value, meets: bool) -> None:
    assert allows(allowed, value) is meets


@given(st.lists(VALUES, min_size=1, max_size=3), st.lists(VALUES, min_size=1, max_size=3))
def test_what_both_allow_is_what_each_allows(one: list[Value], other: list[Value]) -> None:
    both = common(one, other)
    for value in SINGLE:
        assert allows(both, value) is (allows(one, value) and allows(other, value))


@given(st.lists(VALUES, min_size=1, max_size=3), st.lists(VALUES, min_size=1, max_size=3))
def test_what_lies_within_allows_no_more(inner: list[Value], outer: list[Value]) -> None:
    if within(inner, outer):
        assert all(allows(outer, value) for value in SINGLE if allows(inner, value))


@pytest.mark.parametrize("text", ["cpu", "~=1", ">=", ">=x", "=>1", ">=1;<2", "", "1"])
def test_other_texts_are_values(text: str) -> None:
    assert not is_bound(text)
    assert allows((text,), text)


def test_in_words() -> None:
    assert in_words(">=3") == ">= 3"
    assert in_words(">0,<1.5") == "> 0 and < 1.5"
