"""What is known to violate an invariant is recognized by what was measured, and only by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.observations import observed, record
from trl_compat.advisories import Catalogue, load
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Selection, plan
from trl_compat.cells.verdict import Verdict, decide
from trl_compat.errors import BadInput
from trl_compat.stacks.matrix import Matrix

INVARIANT = """
id: adds-up
title: A step adds up its micro-batches
statement: The step is the sum of the micro-batches.
reference: A sum by hand.
measured: {projection: the step on the sum, shares: of each micro-batch}
tolerance: {projection: 0.001}
tolerance_from: A lost micro-batch changes it by a quarter.
reproduction:
  module: saving
  default: [zero2]
  variants: {zero2: {zero_stage: 2}, zero3: {zero_stage: 3}}
"""
FAULT = """
id: loses-the-first
title: The first micro-batch is lost
summary: It trains on the rest.
severity: silent-wrong-result
cause: It is overwritten.
references: [{url: "https://github.com/deepspeedai/DeepSpeed/issues/1"}]
symptoms:
  lost: {violates: adds-up, measured: {shares: "0( 1)+", projection: [0.2, 0.9]}}
affected:
  - {symptom: lost, versions: {deepspeed: "<0.16"}, conditions: {zero_stage: 2}}
fixes:
  - name: another-stage
    conditions: {zero_stage: 3, gone: null}
    summary: Use ZeRO-3.
    snippet: '{"stage": 3}'
"""
VALUES = 'measured: {shares: "0( 1)+", projection: [0.2, 0.9]}'
SAID = {"exception": "PostConditionFailed", "message": "wrong", "where": "check:adds-up"}


@pytest.fixture
def folder(project_folder: Path) -> Path:
    (project_folder / "invariants").mkdir()
    (project_folder / "invariants" / "adds-up.yaml").write_text(INVARIANT)
    (project_folder / "advisories" / "loses-the-first.yaml").write_text(FAULT)
    return project_folder


def known(folder: Path) -> Catalogue:
    return load(folder / "advisories", folder / "tests" / "reproductions")


def judged(folder: Path, measured: dict[str, Any] | None, **error: Any) -> Verdict:
    values = {} if measured is None else {"measured": measured}
    failed = record("raised", error={**SAID, "frames": [], **error}, observations=values)
    catalogue = known(folder)
    return decide(observed(failed, failed), catalogue["adds-up"], catalogue.masks)


def test_a_violation_is_the_advisory_that_the_values_name(folder: Path) -> None:
    found = judged(folder, {"projection": 0.75, "shares": "0 1 1 1"})
    assert (found.outcome, found.symptom) == (Outcome.REPRODUCED, "loses-the-first/lost")


@pytest.mark.parametrize(
    ("measured", "error", "why"),
    [
        ({"projection": 0.75, "shares": "1 0 1 1"}, {}, "shares is 1 0 1 1, no match of '0( 1)+'"),
        ({"projection": 0.1, "shares": "0 1 1 1"}, {}, "projection is 0.1, not from 0.2 to 0.9"),
        ({"projection": 0.75}, {}, "shares is not measured, no match of '0( 1)+'"),
        ({"projection": "0.75", "shares": "0 1 1 1"}, {}, "projection is 0.75, not from 0.2 to"),
        ({"projection": 0.75, "shares": "and 0 1 1"}, {}, "shares is and 0 1 1, no match of"),
        (None, {}, "shares is not measured, no match of '0( 1)+'; projection is not measured"),
        ({"projection": 0.75, "shares": "0 1 1 1"}, {"where": "check:another"}, ""),
        (
            {"projection": 0.75, "shares": "0 1 1 1"},
            {"exception": "ValueError"},
            "the exception is no PostConditionFailed",
        ),
    ],
)
def test_any_other_violation_is_a_new_failure_and_says_why(
    folder: Path, measured: dict[str, Any] | None, error: dict[str, Any], why: str
) -> None:
    found = judged(folder, measured, **error)
    assert found.outcome is Outcome.OTHER_FAILURE
    assert found.resembles is None  # one check raises whatever the cause is
    said = f"(unlike symptom 'loses-the-first/lost': {why}"
    assert said in found.reason if why else "unlike" not in found.reason


def test_of_two_faults_with_the_same_numbers_it_is_the_one_that_the_stack_has(folder: Path) -> None:
    again = FAULT.replace("loses-the-first", "also-loses-the-first").replace("another-s", "some-s")
    (folder / "advisories" / "also-loses-the-first.yaml").write_text(again)
    failed = record(
        "raised",
        error={**SAID, "frames": []},
        observations={"measured": {"projection": 0.75, "shares": "0 1 1 1"}},
    )
    catalogue = known(folder)
    for fault in ("loses-the-first/lost", "also-loses-the-first/lost"):
        seen = observed(failed, failed)
        found = decide(seen, catalogue["adds-up"], catalogue.masks, predicted=fault)
        assert (found.outcome, found.symptom) == (Outcome.REPRODUCED, fault)
    found = decide(seen, catalogue["adds-up"], catalogue.masks, predicted="gone/lost")
    assert found.outcome is Outcome.REPRODUCED


def test_cells_expect_the_fault_where_it_is_known_and_try_its_setting(
    folder: Path, matrix: Matrix
) -> None:
    catalogue = known(folder)
    cells = plan(matrix, catalogue, Selection(failures=("adds-up",))).cells
    told = {
        (cell.stack, cell.variant, cell.fix): (cell.expectation.outcome, dict(cell.conditions))
        for cell in cells
        if cell.model == "tiny-qwen2"
    }
    assert told["old", "zero2", None] == (Outcome.REPRODUCED, {})
    other = {"zero_stage": 3, "gone": None}
    assert told["old", "zero2", "another-stage"] == (Outcome.PASS, other)
    assert told["old", "zero3", None] == (Outcome.PASS, {})
    assert ("old", "zero3", "another-stage") not in told
    assert told["new", "zero2", None] == (Outcome.PASS, {})


def test_a_profile_without_a_word_of_invariants_has_none(folder: Path, matrix: Matrix) -> None:
    assert {cell.failure for cell in plan(matrix, known(folder), Selection()).cells} == {"saving"}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("advisories/loses-the-first", "violates: adds-up", "violates: add-up", "did you mean"),
        ("advisories/loses-the-first", VALUES, "message: a", "nothing"),
        ("advisories/loses-the-first", f", {VALUES}", "", "recognized"),
        ("advisories/loses-the-first", "conditions: {zero_stage: 3, gone: null}", "", "either"),
        ("invariants/adds-up", "tolerance: {projection", "tolerance: {project", "not measured"),
        ("invariants/adds-up", "id: adds-up", "id: add-up", "file name"),
        ("invariants/adds-up", "module: saving", "module: gone", "not found"),
    ],
)  # fmt: skip
def test_a_broken_record_is_a_sentence(
    folder: Path, file: str, old: str, new: str, said: str
) -> None:
    path = folder / f"{file}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(BadInput) as told:
        known(folder)
    assert said in str(told.value)


def test_a_variant_that_is_measured_less_exactly_has_a_tolerance_of_its_own(folder: Path) -> None:
    path = folder / "invariants" / "adds-up.yaml"
    other = """
other_tolerances:
  - {conditions: {dtype: bfloat16}, tolerance: {projection: 0.1}, tolerance_from: Few digits.}
"""
    path.write_text(INVARIANT + other)
    invariant = known(folder).invariants["adds-up"]
    assert invariant.tolerated({"zero_stage": 2}) == {"projection": 0.001}
    assert invariant.tolerated({"zero_stage": 2, "dtype": "bfloat16"}) == {"projection": 0.1}
    path.write_text(INVARIANT + other.replace("{projection", "{length"))
    with pytest.raises(BadInput, match="not measured"):
        known(folder)


def test_two_faults_of_an_invariant_cannot_share_the_name_of_a_fix(folder: Path) -> None:
    again = FAULT.replace("loses-the-first", "loses-the-last")
    (folder / "advisories" / "loses-the-last.yaml").write_text(again)
    with pytest.raises(BadInput, match="both have a fix 'another-stage'"):
        known(folder)


def test_an_invariant_has_no_id_of_an_advisory(folder: Path) -> None:
    (folder / "invariants" / "saving.yaml").write_text(INVARIANT.replace("adds-up", "saving"))
    with pytest.raises(BadInput, match="is the id of an advisory"):
        known(folder)


def test_the_committed_invariants_can_be_read() -> None:
    catalogue = load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    assert "accumulation" in catalogue.subjects
    assert "accumulation" not in catalogue.failures
