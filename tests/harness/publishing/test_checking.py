"""Ranges against executed cells: contradictions, edges that nobody ran, and what may be edited."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import made_results
from tests.harness.conftest import ROOT
from tests.harness.fake_project import CLI
from trl_compat import advisories, results
from trl_compat.advisories import Advisory, Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.publishing.checking import evidence, text
from trl_compat.publishing.checking.check import Checked, check
from trl_compat.publishing.checking.contradictions import contradictions
from trl_compat.publishing.checking.edges import edges
from trl_compat.publishing.checking.proposals import Edit, propose
from trl_compat.publishing.checking.yaml_edit import with_edits
from trl_compat.shipped import releases

OLD = {
    "torch": "2.4.1",
    "trl": "0.11.4",
    "transformers": "4.45.2",
    "deepspeed": "0.15.2",
    "accelerate": "0.34.2",
    "peft": "0.13.2",
}
PASSES, FAILS = Outcome.PASS, Outcome.REPRODUCED


def stack(**versions: str) -> results.StackResult:
    given = {**OLD, **versions}
    return results.StackResult(
        python="3.11", as_of="2026-01-01", lock_sha256=None, packages={}, **given
    )


def name(versions: dict[str, str]) -> str:
    return "-".join(["s", *(f"{p}-{v}" for p, v in versions.items())])


Ran = tuple[dict[str, str], Outcome]


def document(*ran: Ran, **changes: object) -> results.Results:
    """Results of stacks that differ from the old one as said, with one unfixed cell each."""
    cells = []
    for versions, outcome in ran:
        given = {
            "id": f"{name(versions)}__saving",
            "stack": name(versions),
            "failure": "saving",
            "outcome": outcome,
            "symptom": "text" if outcome is FAILS else None,
            "command": f"nox -s matrix -- --stack {name(versions)} --failure saving",
            **changes,
        }
        cells.append(made_results.cell(**given))
    shown = made_results.document(*cells)
    return shown.model_copy(update={"stacks": {name(v): stack(**v) for v, _ in ran}})


def one(found: list[Checked], failure: str = "saving") -> Checked:
    return next(checked for checked in found if checked.failure == failure)


def checked(catalogue: Catalogue, shown: results.Results, failure: str = "saving") -> Checked:
    return one(check(shown, catalogue, releases.known()), failure)


def at(**versions: str) -> dict[str, str]:
    return versions


def test_a_cell_that_passes_inside_contradicts(catalogue: Catalogue) -> None:
    found = checked(catalogue, document((at(trl="0.12.2"), PASSES)))
    (contradiction,) = found.contradictions
    assert (contradiction.place, contradiction.stack) == ("affected 1", "s-trl-0.12.2")
    said = "\n".join(text.lines([found], catalogue, releases.known()))
    assert "contradiction: saving, affected 1: no 'text' in this scope: s-trl-0.12.2" in said
    assert "nox -s matrix -- --stack s-trl-0.12.2 --failure saving" in said


def test_a_cell_that_fails_outside_contradicts(catalogue: Catalogue) -> None:
    found = checked(catalogue, document((at(trl="0.10.1"), FAILS), (at(), FAILS)))
    (contradiction,) = found.contradictions
    assert "outside of every scope" in contradiction.text
    assert contradiction.stack == "s-trl-0.10.1"


def test_a_cell_where_the_failure_is_not_there_contradicts_that(catalogue: Catalogue) -> None:
    found = checked(catalogue, document((at(trl="1.13.0"), FAILS)))
    (contradiction,) = found.contradictions
    assert contradiction.place == "available"
    assert "by hand" in found.refused[0].why


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.MASKED,
        Outcome.NOT_APPLICABLE,
        Outcome.UNRESOLVABLE,
        Outcome.UNSTABLE,
        Outcome.OTHER_FAILURE,
        Outcome.HANG,
    ],
)
def test_what_did_not_get_there_proves_nothing(catalogue: Catalogue, outcome: Outcome) -> None:
    found = checked(catalogue, document((at(), outcome), (at(trl="0.10.1"), outcome)))
    assert (found.bearing, found.contradictions) == (0, ())
    assert not any(edge.proven for edge in found.edges)


def test_a_fixed_cell_and_another_condition_prove_nothing(catalogue: Catalogue) -> None:
    fixed = checked(catalogue, document((at(), PASSES), fixed=True, fix="right"))
    other = checked(catalogue, document((at(), PASSES), variant="zero2"))
    assert (fixed.bearing, fixed.contradictions) == (0, ())
    assert (other.bearing, other.contradictions) == (1, ())
    assert not any(edge.seen_inside or edge.seen_outside for edge in other.edges)


def test_a_masked_cell_shows_the_mask(catalogue: Catalogue) -> None:
    shown = document(
        (at(accelerate="1.8.1"), Outcome.MASKED), masked_by="early-stop", symptom="init"
    )
    found = checked(catalogue, shown, "early-stop")
    assert (found.showing, found.contradictions) == (1, ())
    outside = document(
        (at(accelerate="1.9.0"), Outcome.MASKED), masked_by="early-stop", symptom="init"
    )
    assert len(checked(catalogue, outside, "early-stop").contradictions) == 1


def test_a_cell_that_passes_where_a_mask_should_strike_contradicts_the_mask(
    catalogue: Catalogue,
) -> None:
    shown = document((at(accelerate="1.0.1", trl="0.10.1"), PASSES))
    assert len(checked(catalogue, shown, "early-stop").contradictions) == 1
    assert checked(catalogue, shown).contradictions == ()


def test_an_edge_is_proven_by_its_two_releases_only(catalogue: Catalogue) -> None:
    near = checked(catalogue, document((at(trl="0.11.0"), FAILS), (at(trl="0.10.1"), PASSES)))
    assert [(e.package, str(e.inner)) for e in near.edges if e.proven] == [("trl", "0.11.0")]
    far = checked(catalogue, document((at(trl="0.11.1"), FAILS), (at(trl="0.10.1"), PASSES)))
    assert not any(edge.proven for edge in far.edges)


def test_an_edge_is_of_the_package_that_differs(catalogue: Catalogue) -> None:
    """Where another package of the conjunction leaves it too, nobody knows which one counts."""
    both = document((at(trl="0.11.0"), FAILS), (at(trl="0.10.1", transformers="5.0.0"), PASSES))
    found = checked(catalogue, both)
    assert all(edge.seen_outside is None for edge in found.edges)


def test_an_open_edge_comes_with_what_would_prove_it(catalogue: Catalogue) -> None:
    shown = document((at(trl="0.11.4"), FAILS), (at(trl="0.9.6"), PASSES))
    said = "\n".join(text.lines([checked(catalogue, shown)], catalogue, releases.known()))
    assert "trl 0.11.0 is the first affected release, 0.10.1 is not" in said
    assert "nearest 0.11.4 fails (s-trl-0.11.4); nearest 0.9.6 does not (s-trl-0.9.6)" in said
    assert (
        "trl-compat bisect saving --package trl --good 0.9.6 --bad 0.11.4 --stack s-trl-0.11.4 "
        "--variant zero3 --outcome reproduced:text"
    ) in said


def test_an_open_edge_of_a_mask_is_looked_for_where_it_struck(catalogue: Catalogue) -> None:
    shown = document(
        (at(accelerate="1.0.1"), Outcome.MASKED), masked_by="early-stop", symptom="init"
    )
    said = "\n".join(
        text.lines([checked(catalogue, shown, "early-stop")], catalogue, releases.known())
    )
    assert (
        "trl-compat bisect saving --package accelerate --good 0.34.2 --bad 1.0.1 "
        "--stack s-accelerate-1.0.1 --variant zero3 --outcome masked:early-stop"
    ) in said


def test_edges_that_no_cell_comes_near_to_are_counted_or_listed(catalogue: Catalogue) -> None:
    found = [checked(catalogue, document((at(trl="0.10.1"), PASSES)))]
    brief = "\n".join(text.lines(found, catalogue, releases.known()))
    assert "affected 1: 3 edges, and no executed cell fails in these scopes" in brief
    every = "\n".join(text.lines(found, catalogue, releases.known(), every=True))
    assert (
        "add s-trl-0.10.1-trl-0.11.0: {as_of: 2026-01-01, torch: 2.4.1, trl: 0.11.0, "
        "transformers: 4.45.2, deepspeed: 0.15.2, accelerate: 0.34.2, peft: 0.13.2}, and a cell "
        "with zero_stage 3"
    ) in every


def test_an_end_where_the_release_lacks_it_needs_no_other_side(catalogue: Catalogue) -> None:
    found = checked(catalogue, document((at(trl="1.12.0"), FAILS)))
    (upper,) = [e for e in found.edges if e.package == "trl" and e.upper]
    assert upper.proven
    assert "1.13.0" in upper.not_there


def test_a_range_that_goes_on_in_another_scope_has_no_edge_there() -> None:
    own = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    found = edges(own["ppo-zero3-save"], [], releases.known())
    ends = {(e.scope, e.package, str(e.inner), str(e.outer)) for e in found}
    assert (3, "trl", "0.11.4", "0.12.0") not in ends
    assert (5, "trl", "0.12.0", "0.11.4") not in ends
    assert (3, "trl", "0.11.0", "0.10.1") in ends


def edit_of(catalogue: Catalogue, shown: results.Results) -> tuple[list[Edit], list[str]]:
    advisory = catalogue["saving"]
    edits, refused = propose(
        advisory, evidence.gather(shown, catalogue, advisory), releases.known()
    )
    return edits, [one.why for one in refused]


def test_a_range_is_narrowed_to_what_passed(catalogue: Catalogue) -> None:
    shown = document(
        (at(trl="0.11.4"), FAILS), *((at(trl=v), PASSES) for v in ("0.11.0", "0.11.1"))
    )
    ((edit,), refused) = edit_of(catalogue, shown)
    assert (edit.package, edit.after, refused) == ("trl", ">0.11.1,<=1.12.0", [])


def test_a_range_is_not_narrowed_over_releases_that_were_not_run(catalogue: Catalogue) -> None:
    edits, refused = edit_of(
        catalogue, document((at(trl="0.11.4"), FAILS), (at(trl="0.12.1"), PASSES))
    )
    assert edits == []
    assert "not run, and would be left out too" in refused[0]


def test_a_range_is_widened_to_what_failed(catalogue: Catalogue) -> None:
    ((edit,), _) = edit_of(catalogue, document((at(trl="0.10.1"), FAILS), (at(), FAILS)))
    assert (edit.before, edit.after) == (">=0.11,<=1.12.0", ">=0.10.1,<=1.12.0")


def test_a_range_is_not_widened_over_releases_that_were_not_run(catalogue: Catalogue) -> None:
    edits, refused = edit_of(catalogue, document((at(trl="0.9.4"), FAILS), (at(), FAILS)))
    assert edits == []
    assert "trl 0.9.6, 0.10.1 were not seen to fail between" in refused[0]


def test_where_two_packages_differ_nothing_is_narrowed(catalogue: Catalogue) -> None:
    shown = document((at(), FAILS), (at(trl="0.11.0", transformers="4.44.2"), PASSES))
    edits, refused = edit_of(catalogue, shown)
    assert edits == []
    assert "run s with trl 0.11.0" in refused[0]


def test_conditions_that_decide_narrow_no_range(catalogue: Catalogue) -> None:
    shown = document((at(), FAILS), (at(trl="0.11.0"), PASSES))
    again = shown.cells[0].model_copy(update={"id": "again", "stack": "s-trl-0.11.0"})
    shown = shown.model_copy(update={"cells": [*shown.cells, again]})
    edits, refused = edit_of(catalogue, shown)
    assert edits == []
    assert "conditions decide" in refused[0]


def test_an_edit_never_brings_a_contradiction(catalogue: Catalogue) -> None:
    """The cell just outside fails in one stack and passes in another."""
    shown = document(
        (at(), FAILS), (at(trl="0.10.1"), FAILS), (at(trl="0.10.1", peft="0.14.0"), PASSES)
    )
    edits, refused = edit_of(catalogue, shown)
    assert edits == []
    assert "would contradict other cells" in refused[0]


RECORD = """\
id: saving
affected:
  # A comment that stays.
  - symptom: text
    versions: {trl: ">=0.11,<=1.12.0", transformers: '<5'}  # and one behind
  - {symptom: text, versions: {trl: "==0.9.6"}}
"""


def test_an_edit_changes_nothing_but_the_range(tmp_path: Path) -> None:
    edits = [
        Edit("saving", 1, "transformers", "<5", "<4.50", "why"),
        Edit("saving", 2, "trl", "==0.9.6", ">=0.9.4,<=0.9.6", "why"),
    ]
    after = with_edits(RECORD, tmp_path, edits)
    changed = difflib.ndiff(RECORD.splitlines(), after.splitlines())
    assert [line for line in changed if line.startswith("+ ")] == [
        '+     versions: {trl: ">=0.11,<=1.12.0", transformers: "<4.50"}  # and one behind',
        '+   - {symptom: text, versions: {trl: ">=0.9.4,<=0.9.6"}}',
    ]


SHARED = """\
id: saving
affected:
  - {symptom: text, versions: &both {trl: "<=1.12.0"}}
  - {symptom: text, versions: *both}
"""


def test_a_range_that_scopes_share_is_not_edited_for_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="share a value by an alias"):
        with_edits(SHARED, tmp_path, [Edit("saving", 1, "trl", "<=1.12.0", "<=1.11.0", "why")])


def test_a_record_that_changed_meanwhile_is_not_edited(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="affected 1: cannot find trl '<2'"):
        with_edits(RECORD, tmp_path, [Edit("saving", 1, "trl", "<2", "<1", "why")])


def test_the_records_of_the_project_are_not_contradicted() -> None:
    own = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = results.read(ROOT / "reports" / "results.json")
    assert shown is not None
    assert [c for c in check(shown, own, releases.known()) if c.contradictions] == []


@pytest.fixture
def project(project_folder: Path) -> Path:
    shown = document((at(), FAILS), (at(trl="0.10.1"), FAILS))
    results.write(project_folder / "reports" / "results.json", shown)
    return project_folder


def command(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [str(CLI), "--project", str(root), "advisories", "check", *more]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_command_shows_an_edit_and_writes_it_only_when_asked(project: Path) -> None:
    path = project / "advisories" / "saving.yaml"
    before = path.read_text()
    shown = command(project)
    assert (shown.returncode, path.read_text()) == (1, before)
    assert "nothing was written" in shown.stdout
    assert '+  - {symptom: text, versions: {trl: ">=0.10.1,<=1.12.0"' in shown.stdout
    assert command(project, "--write").returncode == 1
    assert path.read_text() == before.replace(">=0.11,<=1.12.0", ">=0.10.1,<=1.12.0")
    again = command(project)
    assert (again.returncode, "0 contradictions" in again.stdout) == (0, True)


def test_the_diff_can_be_applied(project: Path, tmp_path: Path) -> None:
    shown = command(project).stdout
    diff = shown[shown.index("--- a/") : shown.index("nothing was written")]
    copy = tmp_path / "copy"
    shutil.copytree(project / "advisories", copy / "advisories")
    subprocess.run(["git", "apply", "-"], cwd=copy, input=diff, text=True, check=True)
    assert ">=0.10.1" in (copy / "advisories" / "saving.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--failure", "savin"), "did you mean 'saving'"),
        (("--reports", "/nowhere"), "results.json: not found"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    project: Path, words: tuple[str, ...], said: str
) -> None:
    done = command(project, *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


def test_a_withdrawn_record_is_not_checked(catalogue: Catalogue) -> None:
    gone: Advisory = catalogue["saving"].model_copy(update={"withdrawn": "2026-01-01"})
    left = Catalogue(records={**catalogue.records, "saving": gone})
    shown = document((at(), PASSES))
    assert [c.failure for c in check(shown, left, releases.known())] == ["early-stop"]
    assert contradictions(gone, evidence.gather(shown, catalogue, gone))
