"""Which stacks of grids a profile and the command line mean, and what excludes take from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.advisories import Catalogue
from trl_compat.cells.plan import Selection, plan
from trl_compat.errors import BadInput
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Matrix

GRIDS = """
grids:
  g: {about: x, axes: {trl: [1.0.0, 1.1.0]}}
  h: {about: x, axes: {trl: [1.1.0, 1.2.0]}}
stacks:
"""
PROFILE = """
  by-rule: {about: x, select: [{grids: [g], models: [tiny-qwen2]}]}
  both: {about: x, select: [{grids: [g], stacks: [old], models: [tiny-qwen2]}]}
excludes:
  - {grid: g, failure: saving, variant: zero2, reason: the grid leaves this variant out}
"""


@pytest.fixture
def table(project_folder: Path) -> Matrix:
    path = project_folder / "matrix.yaml"
    text = path.read_text().replace("stacks:\n", GRIDS, 1).replace("excludes:\n", PROFILE, 1)
    path.write_text(text)
    return matrix.load(path)


def trls(table: Matrix, catalogue: Catalogue, **selection: object) -> list[str]:
    found = plan(table, catalogue, Selection.model_validate(selection)).cells
    return list(dict.fromkeys(table.stacks[cell.stack].trl for cell in found))


def test_a_selector_that_names_nothing_means_the_stacks_by_hand(
    table: Matrix, catalogue: Catalogue
) -> None:
    found = plan(table, catalogue, Selection()).cells
    assert found
    assert not [cell for cell in found if table.stacks[cell.stack].grid]


def test_a_profile_names_grids(table: Matrix, catalogue: Catalogue) -> None:
    assert trls(table, catalogue, profile="by-rule") == ["1.0.0", "1.1.0"]
    by_hand = table.stacks["old"].trl
    assert trls(table, catalogue, profile="both") == [by_hand, "1.0.0", "1.1.0"]


def test_a_grid_that_is_named_narrows_the_profile_or_is_taken_whole(
    table: Matrix, catalogue: Catalogue
) -> None:
    assert trls(table, catalogue, profile="by-rule", grids=("h",)) == ["1.1.0"]
    assert trls(table, catalogue, grids=("h",)) == ["1.1.0", "1.2.0"]


def test_a_stack_of_a_grid_can_be_named_alone(table: Matrix, catalogue: Catalogue) -> None:
    name = table.stacks_of("h")[1]
    assert trls(table, catalogue, stacks=(name,)) == ["1.2.0"]
    by_hand = table.stacks["old"].trl
    assert trls(table, catalogue, stacks=("old",), grids=("h",)) == [by_hand]  # profile narrowed


def test_an_exclude_can_name_a_grid(table: Matrix, catalogue: Catalogue) -> None:
    chosen = Selection(grids=("g", "h"), models=("tiny-qwen2",), variants=("zero2",))
    planned = plan(table, catalogue, chosen)
    left_out = {table.stacks[left.stack].trl for left in planned.not_run}
    assert left_out == {"1.0.0", "1.1.0"}  # the stack of both grids, too
    assert {table.stacks[cell.stack].trl for cell in planned.cells} == {"1.2.0"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grids: [g], models", "grids: [k], models", "profile 'by-rule': unknown grid 'k'"),
        ("- {grid: g,", "- {grid: k,", "excludes: unknown grid 'k'"),
        ("- {grid: g,", "- {stack: grid-trl-9, ", "excludes: unknown stack 'grid-trl-9'"),
    ],
)
def test_an_unknown_grid_is_named(
    table: Matrix, project_folder: Path, old: str, new: str, said: str
) -> None:
    path = project_folder / "matrix.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BadInput, match=said):
        matrix.load(path)


def test_a_grid_is_unknown_where_there_are_none(matrix: Matrix, catalogue: Catalogue) -> None:
    with pytest.raises(BadInput, match="unknown grid 'g'; the matrix has no grids"):
        plan(matrix, catalogue, Selection(grids=("g",)))
