"""Nothing is expected of a git commit that no record names, where only ranges would decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.observations import RAISED, observed, record
from trl_compat import advisories, results
from trl_compat.advisories import Catalogue
from trl_compat.advisories.schema import Phase
from trl_compat.cells.expectations import Expectation, applicable_fixes, expect
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.cells.verdict import Verdict
from trl_compat.cli.matrix import conduct
from trl_compat.files import project
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec, agrees
from trl_compat.stacks import matrix as tables
from trl_compat.stacks.matrix import Matrix

TREE = "git+https://github.com/huggingface/trl@0123456789"
NAMED = "git+https://github.com/huggingface/trl@724acb971"


def outcome(
    matrix: Matrix, catalogue: Catalogue, variant: str = "zero3", **versions: str
) -> Outcome | None:
    stack = matrix.stacks["old"].model_copy(update=versions)
    return expect(stack, catalogue["saving"], variant, catalogue.masks).outcome


def test_ranges_say_nothing_of_a_commit(matrix: Matrix, catalogue: Catalogue) -> None:
    assert outcome(matrix, catalogue) is Outcome.REPRODUCED
    assert outcome(matrix, catalogue, trl=TREE) is None
    # Whether the tree has the trainer at all is a range, too.
    assert outcome(matrix, catalogue, variant="zero2", trl=TREE) is None


def test_a_commit_that_a_record_names_is_judged_as_it_says(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    assert outcome(matrix, catalogue, trl=NAMED) is Outcome.REPRODUCED
    assert outcome(matrix, catalogue, variant="zero2", trl=NAMED) is Outcome.PASS
    longer = NAMED + "0" * 31
    assert outcome(matrix, catalogue, trl=longer) is Outcome.REPRODUCED


def test_a_commit_of_a_package_whose_ranges_do_not_matter_changes_nothing(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    tree = TREE.replace("trl", "peft")
    assert outcome(matrix, catalogue, peft=tree) is Outcome.REPRODUCED
    # Only under other conditions, or beside a release that is out of range anyway.
    tree = TREE.replace("trl", "transformers")
    assert outcome(matrix, catalogue, variant="zero2", transformers=tree) is Outcome.PASS
    assert outcome(matrix, catalogue, trl="0.9.6", transformers=tree) is Outcome.PASS
    assert outcome(matrix, catalogue, transformers=tree) is None


def test_a_mask_that_would_be_decided_by_a_range_leaves_nothing_to_expect(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    tree = TREE.replace("trl", "accelerate")
    assert outcome(matrix, catalogue, accelerate=tree) is None


def test_what_is_decided_without_the_commit_is_expected_all_the_same(
    matrix: Matrix, catalogue: Catalogue
) -> None:
    # TRL has no such trainer any more, whatever transformers is.
    tree = TREE.replace("trl", "transformers")
    assert outcome(matrix, catalogue, trl="1.16.0", transformers=tree) is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("phase", "seen", "right"),
    [
        (Phase.IMPORT, Verdict(outcome=Outcome.NOT_APPLICABLE), True),
        (Phase.IMPORT, Verdict(outcome=Outcome.MASKED, masked_by="early-stop"), True),
        (Phase.IMPORT, Verdict(outcome=Outcome.MASKED, masked_by="another"), False),
        (Phase.IMPORT, Verdict(outcome=Outcome.PASS), False),
        # What strikes at the first step cannot come before the cell finds that there is nothing.
        (Phase.STEP, Verdict(outcome=Outcome.MASKED, masked_by="early-stop"), False),
    ],
)
def test_an_import_may_fail_before_a_cell_finds_that_it_is_not_applicable(
    matrix: Matrix, catalogue: Catalogue, phase: Phase, seen: Verdict, right: bool
) -> None:
    masks = [mask.model_copy(update={"phase": phase}) for mask in catalogue.masks]
    stack = matrix.stacks["old"].model_copy(update={"trl": "1.16.0", "accelerate": "1.0.1"})
    told = expect(stack, catalogue["saving"], "zero3", masks)
    assert told.outcome is Outcome.NOT_APPLICABLE
    assert agrees(told, seen) is right


@pytest.mark.parametrize("seen", list(Outcome))
def test_what_has_no_expectation_cannot_deviate(seen: Outcome) -> None:
    assert agrees(Expectation(outcome=None), Verdict(outcome=seen))


def test_every_committed_stack_has_its_expectations() -> None:
    table = tables.load(ROOT / "matrix.yaml")
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    cells = plan(table, catalogue, Selection(profile="full")).cells
    assert [cell.id for cell in cells if cell.expectation.outcome is None] == []


@pytest.mark.parametrize(
    ("seen", "came"),
    [
        (observed(RAISED, RAISED), Outcome.REPRODUCED),
        (observed(record(), record()), Outcome.PASS),
    ],
)
def test_a_run_on_such_a_commit_reports_and_does_not_fail(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, seen: Observation, came: Outcome
) -> None:
    from tests.harness.recorded_runs import keep

    text = where.matrix_file.read_text()
    where.matrix_file.write_text(text.replace("trl@724acb971", "trl@0123456789"))

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        assert not order.confirm, "nothing surprised"
        for cell in todo:
            keep(order, cell, observed(record(), record()) if cell.is_control else seen)
        return False

    monkeypatch.setattr(matrix_run, "execute", engine)
    chosen = Selection(stacks=("tree",), fixes=("none",))
    assert conduct(where, chosen, matrix_run.Options(jobs=1)) == 0
    document = results.read(where.reports / "results.json")
    assert document is not None
    told = {cell.variant: (cell.outcome, cell.expected, cell.agrees) for cell in document.cells}
    assert told == {"ddp": (Outcome.PASS, None, True), "zero3": (came, None, True)}


def test_the_conclusion_names_what_nothing_was_expected_of(tmp_path: Path) -> None:
    from tests.harness.made_results import cell, document
    from trl_compat.report import conclusion

    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = document(cell(expected=None), cell(id="b", outcome=Outcome.PASS))
    said = " ".join(conclusion.summary_lines(shown, shown.cells, catalogue))
    assert "1 cells without an expectation" in said


@pytest.mark.parametrize(
    ("stage", "tried"), [(3, True), ([1, 3], True), (2, False), ([3, None], True), (None, False)]
)
def test_a_fix_is_tried_only_under_its_conditions(
    matrix: Matrix, catalogue: Catalogue, stage: object, tried: bool
) -> None:
    saving = catalogue["saving"]
    fixes = [fix.model_copy(update={"only": {"zero_stage": stage}}) for fix in saving.fixes]
    changed = saving.model_copy(update={"fixes": tuple(fixes), "wrong_fixes": ()})
    found = applicable_fixes(matrix.stacks["old"], changed, "zero3")
    assert bool(found) is tried
