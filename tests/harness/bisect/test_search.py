"""The search: few questions find an edge, whatever cannot be judged or changes its answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_compat.bisect.search import Edge, Search, Side, WrongEnd, majority, search

LETTERS = {"g": Side.GOOD, "b": Side.BAD, "?": Side.UNJUDGED}


class Told:
    """Answers as they are written down; what changes at the second asking is written beside."""

    def __init__(self, first: str, second: str = "") -> None:
        self.first, self.second = first, second or first
        self.asked: list[tuple[int, int]] = []

    def __call__(self, position: int, runs: int) -> Side:
        self.asked.append((position, runs))
        return LETTERS[(self.first if runs == 1 else self.second)[position]]


inner = st.text("gb?", max_size=60)


@st.composite
def one_edge(draw: st.DrawFn) -> str:
    good, bad = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    text = "g" * good + "b" * bad
    gone = draw(st.sets(st.integers(1, len(text) - 2))) if len(text) > 2 else set()
    return "".join("?" if place in gone else letter for place, letter in enumerate(text))


@given(one_edge())
def test_the_edge_is_between_the_last_good_and_the_first_bad(text: str) -> None:
    found = search(len(text), Told(text))
    assert (found.good, found.bad) == (text.rindex("g"), text.index("b"))


@given(one_edge())
def test_what_lies_in_the_edge_was_asked_and_cannot_be_judged(text: str) -> None:
    told = Told(text)
    found = search(len(text), told)
    assert found.between == tuple(range(found.good + 1, found.bad))
    assert {text[p] for p in found.between} <= {"?"}
    assert set(found.between) <= {position for position, _ in told.asked}


@given(one_edge())
def test_few_questions(text: str) -> None:
    told = Told(text)
    search(len(text), told)
    once = [position for position, runs in told.asked if runs == 1]
    skipped = sum(text[p] == "?" for p in once)
    assert len(once) == len(set(once))
    # Each answer at a middle halves what is left; beside a skipped one it takes a little less.
    assert len(once) - skipped - 2 <= math.ceil(math.log2(len(text))) + skipped


@given(inner)
def test_of_several_edges_one_that_is_there(text: str) -> None:
    text = f"g{text}b"
    found = search(len(text), Told(text))
    assert (text[found.good], text[found.bad]) == ("g", "b")
    assert set(text[found.good + 1 : found.bad]) <= {"?"}


@given(st.data())
def test_an_edge_holds_at_the_second_asking(data: st.DataObject) -> None:
    first = data.draw(inner)
    second = data.draw(st.text("gb?", min_size=len(first), max_size=len(first)))
    told = Told(f"g{first}b", f"g{second}b")
    found = search(len(first) + 2, told)
    assert (told.second[found.good], told.second[found.bad]) == ("g", "b")


def test_without_anything_between_the_ends_are_the_edge() -> None:
    told = Told("gb")
    assert search(2, told) == Edge(0, 1, ())
    assert told.asked == [(0, 1), (1, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(("text", "position"), [("bb", 0), ("?b", 0), ("gg", 1), ("g?", 1)])
def test_ends_are_verified_before_anything_else(text: str, position: int) -> None:
    told = Told(f"{text[0]}ggg{text[1]}")
    with pytest.raises(WrongEnd) as seen:
        search(5, told)
    assert seen.value.position == position * 4
    assert seen.value.found is LETTERS[text[position]]
    assert {p for p, _ in told.asked} <= {0, 4}


def test_an_end_that_changes_its_answer_is_no_end() -> None:
    with pytest.raises(WrongEnd, match="position 0 is bad"):
        search(2, Told("gb", "bb"))


def test_a_region_that_cannot_be_judged_is_left_by_growing_steps() -> None:
    told = Told("g" * 60 + "?" * 20 + "g" * 40 + "b" * 8)
    search(128, told)
    asked = [told.first[position] for position, _ in told.asked[2:]]
    assert asked[:7].count("?") <= 6  # of twenty
    assert told.first.index("b") == 120


def test_both_next_positions_are_known_before_the_answer() -> None:
    state = Search(17)
    assert (state.next, state.ahead) == (8, (12, 4))
    assert state.told(8, Side.GOOD).next == 12
    assert Search(3).ahead == ()


def test_beside_a_skipped_one_its_neighbours_are_asked() -> None:
    state = Search(17).told(8, Side.UNJUDGED)
    assert state.next == 9
    assert state.told(9, Side.UNJUDGED).next == 6


@pytest.mark.parametrize(
    ("runs", "side"),
    [("gg", "g"), ("gb", "?"), ("gbg", "g"), ("bbg", "b"), ("gb?", "?"), ("?", "?"), ("g??", "?")],
)
def test_most_runs_decide(runs: str, side: str) -> None:
    assert majority([LETTERS[run] for run in runs]) is LETTERS[side]
