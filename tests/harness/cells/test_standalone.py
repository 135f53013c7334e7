"""The standalone form of a fix is a fix of its own: planned, executed and kept as its text is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories, report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import standalone_name
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput
from trl_compat.report import account, explanation, page_data
from trl_compat.running.store import content_key
from trl_compat.runtime import rank
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Matrix

TEXT = "import json\n\njson.pasted = __name__\n"
TABLE = matrix.load(ROOT / "matrix.yaml")
CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


@pytest.fixture
def with_text(project_folder: Path) -> Catalogue:
    path = project_folder / "advisories" / "saving.yaml"
    more = f"snippet: x, standalone: {json.dumps(TEXT)}}}"
    path.write_text(path.read_text().replace("snippet: x}", more))
    return advisories.load(path.parent, project_folder / "tests" / "reproductions")


def cells(table: Matrix, catalogue: Catalogue, **selection: object) -> dict[str | None, Cell]:
    chosen = Selection.model_validate({"stacks": ("old",), "variants": ("zero3",), **selection})
    return {c.fix: c for c in plan(table, catalogue, chosen).cells if not c.is_control}


def test_it_is_a_cell_beside_that_of_the_entry(matrix: Matrix, with_text: Catalogue) -> None:
    found = cells(matrix, with_text)
    assert list(found) == [None, "right", "right-standalone", "wrong"]
    pasted, entry = found["right-standalone"], found["right"]
    assert (pasted.entry, pasted.code) == (None, TEXT)
    assert (entry.code, bool(entry.entry)) == ("", True)
    assert pasted.expectation.outcome is Outcome.PASS
    assert "--fix right-standalone" in pasted.command()


def test_it_can_be_asked_for_by_name(matrix: Matrix, with_text: Catalogue) -> None:
    assert list(cells(matrix, with_text, fixes=("right-standalone",))) == ["right-standalone"]
    with pytest.raises(BadInput, match="did you mean 'right-standalone'"):
        cells(matrix, with_text, fixes=("right-standalon",))


def test_a_profile_says_with_which_models_it_is_run(matrix: Matrix, with_text: Catalogue) -> None:
    (name,) = [name for name in matrix.profiles if name == "default"]
    profile = matrix.profiles[name].model_copy(update={"standalone": ("tiny-mistral",)})
    narrowed = matrix.model_copy(update={"profiles": {name: profile}})
    qwen = cells(narrowed, with_text, models=("tiny-qwen2",))
    assert "right-standalone" not in qwen
    assert "right" in qwen
    by_name = cells(narrowed, with_text, models=("tiny-qwen2",), fixes=("right-standalone",))
    assert list(by_name) == ["right-standalone"]


def test_a_model_that_is_not_there_is_refused(project_folder: Path) -> None:
    path = project_folder / "matrix.yaml"
    path.write_text(path.read_text().replace("select:", "standalone: [tiny-qwen], select:", 1))
    with pytest.raises(BadInput, match="did you mean 'tiny-qwen2'"):
        matrix.load(path)


def test_another_text_is_another_observation(matrix: Matrix, with_text: Catalogue) -> None:
    cell = cells(matrix, with_text)["right-standalone"]
    others = [cell, cell.model_copy(update={"code": f"{TEXT}\n"})]
    keys = {
        content_key(
            one,
            lock_sha256="",
            conditions={},
            reproduction_digest="",
            model_digest="",
            bundle_digest="",
        )
        for one in others
    }
    assert len(keys) == 2


def test_a_rank_executes_the_text_as_a_script_does(tmp_path: Path) -> None:
    spec = CellSpec("c", "r.py", "v", {}, "m", "m", 2, "cpu", str(tmp_path), fix_code=TEXT)
    spec.write(tmp_path / "spec.json")
    assert rank.apply_fix(CellSpec.read(tmp_path / "spec.json")).startswith("executed")
    assert vars(json).pop("pasted") == "__main__"


def test_a_text_that_fails_is_not_a_fix(tmp_path: Path) -> None:
    spec = CellSpec("c", "r.py", "v", {}, "m", "m", 2, "cpu", str(tmp_path), fix_code="1 / 0")
    with pytest.raises(ZeroDivisionError):
        rank.apply_fix(spec)


@pytest.mark.parametrize("failure", CATALOGUE.failures)
def test_every_fix_is_run_in_both_forms_where_the_failure_shows(failure: str) -> None:
    """The text that is run is the text that ``trl-compat fix --standalone`` prints."""
    selection = Selection(profile="full", failures=(failure,))
    by_place: dict[tuple[str, str, str], dict[str | None, Cell]] = {}
    for cell in plan(TABLE, CATALOGUE, selection).cells:
        by_place.setdefault((cell.stack, cell.variant, cell.model), {})[cell.fix] = cell
    run = 0
    for found in by_place.values():
        for fix in CATALOGUE[failure].fixes:
            pasted = found.get(standalone_name(fix.name))
            assert (fix.name in found) is (pasted is not None)
            assert pasted is None or pasted.code == fix.standalone
            run += pasted is not None
    assert run


def test_the_default_profile_grows_by_less_than_a_sixth() -> None:
    found = plan(TABLE, CATALOGUE, Selection()).cells
    pasted = sum(bool(cell.code) for cell in found)
    assert 0 < pasted < 0.15 * (len(found) - pasted)


def test_the_reports_count_both_forms_apart() -> None:
    document = results.read(ROOT / "reports" / "results.json")
    assert document is not None
    one = next(c for c in document.cells if c.fix == "save-through-engine")
    name = standalone_name("save-through-engine")
    pasted = one.model_copy(update={"fix": name, "id": f"{one.id}-standalone"})
    others = [cell for cell in document.cells if cell.fix != name]
    more = document.model_copy(update={"cells": [*others, pasted]})
    advisory = CATALOGUE["ppo-zero3-save"]
    told = account.of(more, advisory)
    said = "\n".join(text for _, text in explanation.sections(advisory, told))
    assert "--standalone\n(Proven in 1 of 1 cells.)" in said
    page = page_data.embedded(more, CATALOGUE)["failures"]["ppo-zero3-save"]["fixes"]
    assert page[name]["snippet"] == advisory.fixes[0].standalone
    assert "Without this package: proven in 1 of 1 cells" in report.markdown.render(more, CATALOGUE)
