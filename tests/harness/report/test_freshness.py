"""Reports that would be the same are not made again; whatever may have changed makes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document, merged
from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.report import freshness
from trl_compat.results import Results

CATALOGUE = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")


class Rendered:
    """Writes results with a note, and says whether the reports were made."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.note = folder / "reports", folder / "state" / "made.json"
        self.made = 0
        render = report.render_all

        def counted(*given: object, **more: object) -> list[str]:
            self.made += 1
            return render(*given, **more)  # type: ignore[arg-type]

        patch.setattr(report, "render_all", counted)

    def again(self, found: Results, catalogue: Catalogue = CATALOGUE) -> bool:
        before = self.made
        report.write_all(self.folder, found, catalogue, note=self.note)
        assert report.outdated(self.folder, self.written(), catalogue) == []
        return self.made > before

    def written(self) -> Results:
        found = results.read(self.folder / "results.json")
        assert found is not None
        return found


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rendered:
    made = Rendered(tmp_path, monkeypatch)
    assert made.again(document(cell()))
    return made


def test_the_same_results_of_a_later_run_are_not_rendered_again(rendered: Rendered) -> None:
    found = merged()
    assert rendered.again(found)
    later = found.model_copy(update={"generated_at": "2027-01-01T00:00:00+00:00", "command": "x"})
    assert not rendered.again(later)


def test_other_results_or_advisories_are(rendered: Rendered) -> None:
    assert rendered.again(document(cell(), cell(id="n", variant="zero2")))
    assert rendered.again(document(cell()))
    changed = CATALOGUE["ppo-zero3-save"].model_copy(update={"summary": "Another sentence."})
    records = {**CATALOGUE.records, "ppo-zero3-save": changed}
    assert rendered.again(document(cell()), CATALOGUE.model_copy(update={"records": records}))


@pytest.mark.parametrize("name", ["compatibility.html", "failures/ppo-zero3-save.md", "badge.svg"])
def test_a_report_that_was_edited_or_is_gone_is_made_again(rendered: Rendered, name: str) -> None:
    path = rendered.folder / name
    path.write_bytes(path.read_bytes() + b" ")
    assert rendered.again(document(cell()))
    path.unlink()
    assert rendered.again(document(cell()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"from": 1, "files": 2}', "\x00"])
def test_a_note_that_is_none_is_not_believed(rendered: Rendered, text: str) -> None:
    rendered.note.write_text(text)
    assert rendered.again(document(cell()))
    assert not rendered.again(document(cell()))


def test_no_report_shows_what_the_digest_leaves_out(rendered: Rendered) -> None:
    others = dict.fromkeys(("generated_at", "command", "profile", "harness_version"), "another")
    assert set(others) < set(freshness.LAST_RUN)
    rendered.again(merged())
    found = rendered.written().model_copy(update=others)
    assert report.outdated(rendered.folder, found, CATALOGUE) == []
