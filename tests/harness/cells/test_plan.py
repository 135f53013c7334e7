"""Which cells a selection means, in which order, and what they are expected to become."""

from __future__ import annotations

import pytest

from tests.harness.conftest import ROOT
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput
from trl_compat.stacks.matrix import Matrix
from trl_compat.stacks.matrix import load as load_matrix


def cells(matrix: Matrix, catalogue: Catalogue, **selection: object) -> list[Cell]:
    return plan(matrix, catalogue, Selection.model_validate(selection)).cells


def test_an_affected_stack_gets_its_control_first_and_every_fix(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    found = cells(matrix, catalogue, stacks=("old",))
    seen = [(cell.variant, cell.fix, cell.expectation.outcome) for cell in found]
    assert seen == [
        ("ddp", None, Outcome.PASS),
        ("zero3", None, Outcome.REPRODUCED),
        ("zero3", "right", Outcome.PASS),
        ("zero3", "wrong", Outcome.REPRODUCED),
    ]
    assert [cell.expectation.symptom for cell in found] == [None, "text", None, "empty"]
    assert found[0].is_control


def test_a_masked_stack_expects_the_mask(matrix: Matrix, catalogue: Catalogue) -> None:
    found = cells(matrix, catalogue, stacks=("masked",), variants=("zero3",))
    assert {cell.expectation.masked_by for cell in found} == {"early-stop"}


def test_a_release_without_the_trainer_is_not_applicable(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    found = cells(matrix, catalogue, stacks=("new",))
    assert {cell.expectation.outcome for cell in found} == {Outcome.NOT_APPLICABLE}
    assert not [cell for cell in found if cell.fix]


def test_a_commit_is_affected_by_name_only(matrix: Matrix, catalogue: Catalogue) -> None:
    found = {cell.variant: cell for cell in cells(matrix, catalogue, stacks=("tree",))}
    assert found["zero3"].expectation.outcome is Outcome.REPRODUCED


def test_naming_what_the_profile_has_not_selects_it_all_the_same(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    found = cells(matrix, catalogue, stacks=("old",), variants=("zero2",), models=("tiny-mistral",))
    assert [(cell.variant, cell.model) for cell in found] == [
        ("ddp", "tiny-mistral"),
        ("zero2", "tiny-mistral"),
    ]


def test_what_is_taken_from_the_whole_matrix_is_not_narrowed_by_the_profile(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    named = {"stacks": ("old",), "variants": ("zero3", "zero2"), "fixes": ("none",)}
    assert {(c.variant, c.model) for c in cells(matrix, catalogue, **named, whole=True)} == {
        (variant, model)
        for variant in ("ddp", "zero2", "zero3")
        for model in ("tiny-mistral", "tiny-qwen2")
    }
    assert {(c.variant, c.model) for c in cells(matrix, catalogue, **named)} == {
        ("ddp", "tiny-qwen2"),
        ("zero3", "tiny-qwen2"),
    }


def test_the_command_of_a_cell_selects_exactly_it_and_its_control(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    for cell in cells(matrix, catalogue):
        words = cell.command().split(" -- ")[1].split()
        named = {words[i]: words[i + 1] for i in range(0, len(words) - 1, 2)}
        again = cells(
            matrix,
            catalogue,
            stacks=(named["--stack"],),
            failures=(named["--failure"],),
            variants=(named["--variant"],),
            models=(named["--model"],),
            fixes=(named["--fix"],),
            world_size=int(named["--world-size"]),
        )
        assert cell.id in {c.id for c in again}
        assert all(c.id == cell.id or c.is_control for c in again)


def test_excluded_cells_are_listed_with_their_reason(matrix: Matrix, catalogue: Catalogue) -> None:
    result = plan(matrix, catalogue, Selection(stacks=("new",), models=("tiny-mistral",)))
    assert not result.cells
    assert {left.reason for left in result.not_run} == {"the model does not fit here"}


def test_ids_are_unique_and_safe_as_file_names(matrix: Matrix, catalogue: Catalogue) -> None:
    found = [cell.id for cell in cells(matrix, catalogue)]
    assert len(set(found)) == len(found)
    assert all(set(i) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for i in found)


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"stacks": ("od",)}, "unknown stack 'od'; did you mean 'old'"),
        ({"failures": ("savin",)}, "unknown failure 'savin'; did you mean 'saving'"),
        ({"models": ("tiny-qwen",)}, "did you mean 'tiny-qwen2'"),
        ({"variants": ("zero4",)}, "unknown variant 'zero4'"),
        ({"fixes": ("rihgt",)}, "did you mean 'right'"),
        ({"profile": "defualt"}, "did you mean 'default'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(
    matrix: Matrix, catalogue: Catalogue, selection: dict[str, object], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        cells(matrix, catalogue, **selection)


def test_cells_on_a_shared_gpu_are_others_than_those_with_a_gpu_for_each_rank() -> None:
    table = load_matrix(ROOT / "matrix.yaml")
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    some = {"profile": "full", "stacks": ("trl-0.11.4", "trl-1.16.0")}
    shared = cells(table, catalogue, device="cuda-shared", **some)
    alone = cells(table, catalogue, device="cuda", **some)
    assert not {cell.id for cell in shared} & {cell.id for cell in alone}
    assert all("--device cuda --share-gpu" in cell.command() for cell in shared)
    assert all("--share-gpu" not in cell.command() for cell in alone)
    by_device = {
        failure
        for failure in catalogue.failures
        if any("device" in scope.conditions for scope in catalogue[failure].affected)
    }
    assert "zero3-gloo-unwaited-allgather" in by_device
    unfixed = [cell for cell in shared if cell.fix is None and cell.failure in by_device]
    assert {cell.expectation.outcome for cell in unfixed} == {None}
    told = {
        (cell.stack, cell.failure, cell.variant, cell.model, cell.fix): cell.expectation
        for cell in alone
    }
    for cell in shared:
        if cell.failure not in by_device:
            place = (cell.stack, cell.failure, cell.variant, cell.model, cell.fix)
            assert cell.expectation == told[place]
