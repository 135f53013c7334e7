"""Delta debugging: what it keeps is enough, and nothing of it can be left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trl_compat.bisect.ddmin import ddmin
from trl_compat.bisect.search import Side

CHANGES = ("torch", "trl", "transformers", "deepspeed", "accelerate", "peft", "python")
some = st.frozensets(st.sampled_from(CHANGES))


@given(some.filter(bool))
def test_the_only_set_that_matters_is_found(cause: frozenset[str]) -> None:
    found = ddmin(CHANGES, lambda tried: Side.BAD if cause <= tried else Side.GOOD)
    assert set(found) == cause


@given(st.sets(some.filter(bool), min_size=1), st.sets(some))
def test_what_is_found_fails_and_loses_nothing(
    causes: set[frozenset[str]], unjudged: set[frozenset[str]]
) -> None:
    def attempt(tried: frozenset[str]) -> Side:
        if tried in unjudged and tried != frozenset(CHANGES):
            return Side.UNJUDGED
        return Side.BAD if any(cause <= tried for cause in causes) else Side.GOOD

    found = frozenset(ddmin(CHANGES, attempt))
    assert attempt(found) is Side.BAD
    assert len(found) == 1 or all(attempt(found - {one}) is not Side.BAD for one in found)


@given(some.filter(bool))
def test_nothing_is_tried_twice(cause: frozenset[str]) -> None:
    tried: list[frozenset[str]] = []

    def attempt(chosen: frozenset[str]) -> Side:
        tried.append(chosen)
        return Side.BAD if cause <= chosen else Side.GOOD

    ddmin(CHANGES, attempt)
    assert len(tried) == len(set(tried))
    assert len(tried) <= 40
