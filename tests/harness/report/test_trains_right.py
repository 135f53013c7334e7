"""trains-right.md has the number of every measured cell, and says whose fault a wrong one is."""

from __future__ import annotations

from pathlib import Path

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document
from trl_compat import advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.report import trains_right
from trl_compat.results import found_in

CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
FAULT = "ds-zero2-ga-keeps-last"


def measured(variant: str, projection: float, outcome: Outcome, symptom: str | None = None) -> str:
    one = cell(
        id=f"a-{variant}",
        failure="accumulation",
        variant=variant,
        outcome=outcome,
        symptom=symptom,
        measured={"projection": projection},
    )
    return trains_right.render(document(one), CATALOGUE)


def test_a_right_step_is_a_number() -> None:
    said = measured("engine-zero2-ga4", 1.0, Outcome.PASS)
    assert "| 1 |" in said
    assert "❌" not in said.split("The numbers are")[1].split("\n", 1)[1]


def test_a_known_fault_has_its_number_and_its_name() -> None:
    said = measured("engine-zero2-ga4", 0.158, Outcome.REPRODUCED, f"{FAULT}/only-the-last")
    assert "| ❌ 0.158 |" in said
    assert f"**{FAULT}**, on one stack:" in said


def test_an_unknown_violation_looks_like_none_of_them() -> None:
    assert "| ⚠️ 0.3 |" in measured("engine-zero2-ga4", 0.3, Outcome.OTHER_FAILURE)


def test_where_no_projection_is_measured_it_is_what_is_out_of_bounds() -> None:
    one = cell(
        failure="saved",
        variant="sft-ddp-model",
        outcome=Outcome.OTHER_FAILURE,
        measured={"relative_error": 1e-05, "missing": 26, "different": 0},
    )
    assert "| ⚠️ missing 26 |" in trains_right.render(document(one), CATALOGUE)


def test_the_fault_of_a_measured_cell_is_the_advisory_and_not_the_invariant() -> None:
    one = cell(failure="accumulation", outcome=Outcome.REPRODUCED, symptom=f"{FAULT}/only-the-last")
    assert found_in(one) == FAULT


def test_without_cells_it_says_how_to_get_them(tmp_path: Path) -> None:
    assert "--profile trains-right" in trains_right.render(document(cell()), CATALOGUE)
