"""Shards: every cell in exactly one, the same on every machine, stacks together, balanced."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.cells import shards
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, CellPlan, Selection, plan
from trl_compat.cells.shards import STACK_SECONDS, Shard
from trl_compat.errors import BadInput
from trl_compat.shipped import seconds
from trl_compat.shipped.seconds import UNKNOWN, Seconds
from trl_compat.stacks import matrix

TABLE = matrix.load(ROOT / "matrix.yaml")
CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
PLANS = {p: plan(TABLE, CATALOGUE, Selection(profile=p)) for p in TABLE.profiles}
FAILURES = tuple(CATALOGUE.failures)


def made(stack: str, failure: str = "f", variant: str = "v", model: str = "m") -> Cell:
    return Cell(
        stack=stack,
        failure=failure,
        variant=variant,
        model=model,
        world_size=2,
        device="cpu",
        expectation=Expectation(outcome=Outcome.PASS),
    )


def parts(planned: CellPlan, count: int, known: Seconds) -> list[list[str]]:
    divided = [shards.part(planned, Shard(n, count), known) for n in range(1, count + 1)]
    return [[cell.id for cell in one.cells] for one in divided]


@pytest.mark.parametrize("profile", sorted(PLANS))
@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_every_cell_is_in_exactly_one_shard_in_the_order_of_the_plan(
    profile: str, count: int
) -> None:
    ids = [cell.id for cell in PLANS[profile].cells]
    divided = parts(PLANS[profile], count, seconds.known())
    assert sorted(name for one in divided for name in one) == sorted(ids)
    place = {name: number for number, name in enumerate(ids)}
    assert all(one == sorted(one, key=place.__getitem__) for one in divided)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 2), st.integers(0, 90)),
        max_size=30,
        unique_by=lambda item: item[:3],
    ),
    st.integers(1, 12),
)
def test_whatever_cells_take_none_is_lost_or_doubled(
    drawn: list[tuple[int, int, int, int]], count: int
) -> None:
    cells = [made(f"s{s}", f"f{f}", f"v{v}") for s, f, v, _ in drawn]
    known = Seconds({f"s{s}": {f"f{f}": {"2": float(took)}} for s, f, _, took in drawn})
    divided = parts(CellPlan(cells=cells), count, known)
    assert sorted(name for one in divided for name in one) == sorted(cell.id for cell in cells)


@pytest.mark.parametrize("profile", ["default", "full", "grid", "world-sizes"])
def test_a_control_is_in_the_shard_of_the_cells_that_need_it(profile: str) -> None:
    for one in range(1, 9):
        cells = shards.part(PLANS[profile], Shard(one, 8), seconds.known()).cells
        controls = {(c.stack, c.failure, c.model, c.world_size) for c in cells if c.is_control}
        for cell in cells:
            if CATALOGUE.reproduction(cell.failure).control is not None:
                assert (cell.stack, cell.failure, cell.model, cell.world_size) in controls


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_shards_of_the_default_profile_are_balanced_and_divide_no_stack(count: int) -> None:
    divided = shards.shares(PLANS["default"].cells, count, seconds.known())
    stacks = [stack for share in divided for stack in share.stacks]
    assert len(stacks) == len(set(stacks))
    loads = [share.load for share in divided]
    assert max(loads) <= 1.2 * sum(loads) / count


def test_a_stack_is_divided_where_that_makes_the_longest_shard_shorter() -> None:
    known = Seconds({"big": {f"f{n}": {"2": 100.0} for n in range(4)}, "a": {"f": {"2": 10.0}}})
    cells = [*(made("big", f"f{n}") for n in range(4)), made("a")]
    one, other = shards.shares(cells, 2, known)
    assert sorted((one.load, other.load)) == [260_000, 330_000]
    assert {"big"} == set(one.stacks) & set(other.stacks)


def test_it_is_not_where_building_it_twice_costs_more() -> None:
    known = Seconds({"big": {f"f{n}": {"2": STACK_SECONDS / 50} for n in range(4)}})
    one, other = shards.shares([made("big", f"f{n}") for n in range(4)], 2, known)
    assert len(one.stacks["big"]) == 4
    assert other.stacks == {}


def test_what_the_matrix_leaves_out_is_said_by_every_shard() -> None:
    whole = PLANS["full"]
    assert whole.not_run
    for one in (1, 2):
        assert shards.part(whole, Shard(one, 2), seconds.known()).not_run == whole.not_run


def test_the_order_in_which_cells_come_changes_nothing() -> None:
    cells = PLANS["default"].cells
    turned = CellPlan(cells=cells[::-1])
    for one, other in zip(
        parts(CellPlan(cells=cells), 5, seconds.known()),
        parts(turned, 5, seconds.known()),
        strict=True,
    ):
        assert sorted(one) == sorted(other)


PRINT = """
from tests.harness.cells.test_shards import PLANS, parts
from trl_compat.shipped import seconds
print(parts(PLANS["smoke"], 3, seconds.known()))
"""


def test_another_process_divides_in_the_same_way() -> None:
    found = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", PRINT], cwd=ROOT, env=env, capture_output=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_on_gpus_cells_are_divided_as_on_cpus() -> None:
    cells = PLANS["default"].cells
    on_gpus = [cell.model_copy(update={"device": "cuda"}) for cell in cells]
    for one, other in zip(
        shards.shares(cells, 4, seconds.known()),
        shards.shares(on_gpus, 4, seconds.known()),
        strict=True,
    ):
        assert one.stacks == other.stacks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3/2", "no such shard; the shards are 1/2 to 2/2"),
        ("0/2", "no such shard"),
        ("1/0", "no such shard; there are none"),
        ("1", "not of the form K/N"),
        ("1/2/3", "not of the form K/N"),
        ("-1/2", "not of the form K/N"),
        ("a/b", "not of the form K/N"),
        ("", "not of the form K/N"),
        ("1/²", "not of the form K/N"),
    ],
)
def test_what_is_no_shard_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Shard.parse(text)


def test_a_shard_without_cells_says_so() -> None:
    planned = CellPlan(cells=[made("s")])
    said = shards.sentence(planned, Shard(2, 2), seconds.known())
    assert said == "shard 2/2 has no cells: the selection fills 1 of 2 shards"


def test_what_was_never_run_is_taken_to_be_like_what_was() -> None:
    known = Seconds({"a": {"f": {"2": 1.0, "8": 20.0}}, "b": {"f": {"2": 3.0}, "g": {"2": 9.0}}})
    assert known.of("a", "f", 8) == 20.0
    assert known.of("new", "f", 2) == 2.0
    assert known.of("new", "h", 2) == 3.0
    assert known.of("new", "f", 4) == 6.0
    assert Seconds({}).of("new", "f", 2) == UNKNOWN
