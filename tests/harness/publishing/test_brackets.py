"""Which cells a record is shown by: those that it covers, and those right beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.advisories import Advisory, Catalogue, load
from trl_compat.cells.plan import plan
from trl_compat.errors import BadInput
from trl_compat.files.project import at
from trl_compat.publishing.adding import brackets
from trl_compat.stacks.matrix import Matrix

MODEL = ("tiny-qwen2",)


def with_releases(matrix: Matrix, *versions: str, grid: str = "") -> Matrix:
    """The matrix with stacks like ``old`` that have other releases of TRL."""
    old = matrix.stacks["old"]
    more = {f"s-{v}": old.model_copy(update={"trl": v, "grid": grid}) for v in versions}
    return matrix.model_copy(update={"stacks": {**matrix.stacks, **more}})


def covering(catalogue: Catalogue, failure: str, **versions: str) -> Catalogue:
    """The catalogue with other ranges of a record."""
    record: Advisory = catalogue.records[failure]
    scopes = (record.affected[0].model_copy(update={"versions": versions}),)
    changed = record.model_copy(update={"affected": scopes, "available": {}})
    return catalogue.model_copy(update={"records": {**catalogue.records, failure: changed}})


def test_all_stacks_that_are_covered_are_run_and_the_nearest_that_are_not(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    table = with_releases(matrix, "0.9.6", "0.10.1", "0.12.2", "0.13.0", "0.14.0")
    found = brackets.select(
        table, covering(catalogue, "saving", trl=">=0.11.0,<=0.12.2"), "saving", models=MODEL
    )
    assert found.stacks == ("old", "s-0.10.1", "s-0.12.2", "s-0.13.0")
    assert (found.failures, found.variants, found.fixes) == (("saving",), ("zero3",), ())


def test_of_several_stacks_with_the_nearest_release_the_most_similar_is_run(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    table = with_releases(matrix, "0.12.2")
    other = table.stacks["s-0.12.2"].model_copy(update={"peft": "0.14.0", "torch": "2.6.0"})
    stacks = {"a": other, **table.stacks, "z": other}
    table = table.model_copy(update={"stacks": stacks})
    record = covering(catalogue, "saving", trl="==0.11.4")
    assert brackets.select(table, record, "saving", models=MODEL).stacks == ("old", "s-0.12.2")


def test_of_grids_the_first_and_the_last_stack_are_run(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    versions = ("0.12.0", "0.12.1", "0.12.2", "0.13.0", "0.14.0")
    table = with_releases(matrix, *versions, grid="g")
    record = covering(catalogue, "saving", trl=">=0.12.0,<=0.13.0")
    found = brackets.select(table, record, "saving", models=MODEL).stacks
    assert found == ("old", "s-0.12.0", "s-0.13.0", "s-0.14.0")


def test_a_mask_is_shown_by_cells_that_it_stops_without_their_fixes(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    found = brackets.select(matrix, catalogue, "early-stop", models=MODEL)
    assert (found.failures, found.stacks, found.fixes) == (
        ("saving",),
        ("old", "masked"),
        ("none",),
    )
    cells = plan(matrix, catalogue, found).cells
    told = {c.stack: brackets.symptom_of(c, matrix, catalogue, "early-stop") for c in cells}
    assert told == {"old": None, "masked": "init"}


def test_a_silent_fault_is_shown_by_the_variants_of_its_invariant_that_it_concerns(
    checkout: Path, matrix: Matrix
) -> None:
    where = at(checkout)
    text = (where.advisories / "early-stop.yaml").read_text()
    text = text.replace("id: early-stop", "id: loses").replace("masks: true\n", "")
    text = text.replace(
        text[text.index("  init:") : text.index("affected")],
        "  init: {violates: adds-up, measured: {sum: [0, 1]}}\n",
    ).replace("conditions: {trainer: PPO}", "conditions: {zero_stage: 2}")
    (where.advisories / "loses.yaml").write_text(text)
    (where.advisories / "early-stop.yaml").unlink()
    catalogue = load(where.advisories, where.reproductions)
    found = brackets.select(matrix, catalogue, "loses", models=MODEL)
    assert (found.failures, found.variants) == (("adds-up",), ("zero2",))
    assert found.stacks == ("old", "masked", "new")


def test_stacks_and_profiles_are_taken_as_they_are_named(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    named = brackets.select(matrix, catalogue, "saving", stacks=("new",), models=MODEL)
    assert (named.stacks, named.variants, named.whole) == (("new",), ("zero3",), True)
    profile = brackets.select(matrix, catalogue, "saving", profile="default")
    assert (profile.stacks, profile.variants, profile.whole) == ((), (), False)


def test_a_record_that_covers_no_stack_is_refused(matrix: Matrix, catalogue: Catalogue) -> None:
    nowhere = covering(catalogue, "saving", trl="==0.5.0")
    with pytest.raises(BadInput, match=r"no stack of matrix\.yaml is in the ranges of saving"):
        brackets.select(matrix, nowhere, "saving", models=MODEL)


def test_a_mask_that_covers_no_stack_does_not_run_everything(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    nowhere = covering(catalogue, "early-stop", accelerate="==0.1.0")
    with pytest.raises(BadInput, match="is in the ranges of early-stop"):
        brackets.select(matrix, nowhere, "early-stop", stacks=("old",), models=MODEL)
