"""What was not run is never counted with what failed, in no format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document
from trl_compat import results
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.report import account, conclusion, counts, explanation, html, junit, markdown
from trl_compat.results import CellResult, Results

CATALOGUE = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
ADVISORY = CATALOGUE["ppo-zero3-save"]
RIGHT, WRONG = ADVISORY.fixes[0].name, ADVISORY.wrong_fixes[0].name


def tried(fix: str, outcomes: Sequence[Outcome], *, wrong: bool = False) -> list[CellResult]:
    wanted = Outcome.REPRODUCED if wrong else Outcome.PASS
    return [
        cell(
            id=f"{fix}-{number}",
            fix=fix,
            fixed=True,
            wrong_fix=wrong,
            outcome=outcome,
            expected=wanted,
            agrees=outcome in (wanted, Outcome.UNAVAILABLE),
        )
        for number, outcome in enumerate(outcomes)
    ]


NINE_OF_FIFTEEN = [Outcome.PASS] * 9 + [Outcome.UNAVAILABLE] * 6
MIXED = [
    *[Outcome.REPRODUCED] * 4,
    Outcome.PASS,
    Outcome.MASKED,
    Outcome.MASKED,
    Outcome.UNRESOLVABLE,
    Outcome.HARNESS_ERROR,
    Outcome.CRASH,
]
PROVEN = "proven in 9 of 15 cells; the others: 6 not run (out of reach)"
REST = (
    "the others: 1 pass, 2 masked by another failure, 1 crash, 1 not run (cannot be "
    "installed), 1 not run (the harness failed)"
)


@pytest.fixture
def shown() -> Results:
    return document(cell(), *tried(RIGHT, NINE_OF_FIFTEEN), *tried(WRONG, MIXED, wrong=True))


def told_by(document: Results) -> dict[str, str]:
    """Each format as one line of text."""
    told = account.of(document, ADVISORY)
    explained = " ".join(text for _, text in explanation.sections(ADVISORY, told))
    texts = {
        "terminal": " ".join(conclusion.summary_lines(document, document.cells, CATALOGUE)),
        "markdown": markdown.render(document, CATALOGUE),
        "html": html.render(document, CATALOGUE),
        "explain": explained,
    }
    return {name: " ".join(text.split()) for name, text in texts.items()}


@pytest.mark.parametrize("name", ["terminal", "markdown", "html", "explain"])
def test_of_fifteen_cells_nine_are_proven_and_six_were_not_run(name: str, shown: Results) -> None:
    said = told_by(shown)[name]
    assert PROVEN in said.replace("Proven", "proven")
    wrong = "shown to be wrong" if name == "terminal" else "fails"
    assert f"{wrong} in 4 of 10 cells; {REST}" in said.replace("Fails", "fails")


def test_every_cell_is_counted_once() -> None:
    found = counts.count(tried(WRONG, MIXED, wrong=True), Outcome.REPRODUCED)
    assert (found.shown, found.total) == (4, len(MIXED))
    for outcome in Outcome:
        alone = counts.count([cell(outcome=outcome)], Outcome.PASS)
        assert (alone.shown, alone.total) == (outcome is Outcome.PASS, 1)
        others = "" if outcome is Outcome.PASS else "; the other: 1 "
        assert alone.words("proven").startswith(f"proven in {alone.shown} of 1 cells{others}")


def test_nothing_tried_is_told_as_such() -> None:
    assert counts.count([], Outcome.PASS).words("proven") == "not run in these results"


def test_a_fix_of_another_failure_that_has_the_same_name_does_not_count() -> None:
    other = cell(failure="grpo-zero3-optimizer", fix=RIGHT, fixed=True, outcome=Outcome.PASS)
    found = counts.of_fix([*tried(RIGHT, [Outcome.PASS]), other], "ppo-zero3-save", RIGHT)
    assert found.total == 1


def test_junit_counts_what_was_not_run_apart(shown: Results) -> None:
    root = ET.fromstring(junit.render(shown))
    counted = {n: int(root.get(n, "-1")) for n in ("tests", "failures", "errors", "skipped")}
    # Failures: the wrong fix that passes, is masked twice, and crashes.
    assert counted == {"tests": 26, "failures": 4, "errors": 2, "skipped": 6}


def test_every_fix_that_the_summary_names_is_of_a_record() -> None:
    """An invariant has no fix of its own; what violates it has."""
    committed = results.read(ROOT / "reports" / "results.json")
    assert committed is not None
    said = " ".join(conclusion.summary_lines(committed, committed.cells, CATALOGUE))
    named = set(re.findall(r"trl-compat fix ([\w-]+)", said))
    assert named <= set(CATALOGUE.records)
    assert "ds-zero2-ga-keeps-last" in named
    assert "violated invariant[/] accumulation: TRL" in said
