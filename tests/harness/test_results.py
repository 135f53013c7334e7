"""results.json: the published schema, scrubbing, and files that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document, merged
from trl_compat import results
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcomes import Outcome
from trl_compat.errors import BadInput
from trl_compat.report import account, html, junit, markdown, page_data, tables

SCHEMA = Path(results.__file__).parent / "schema" / "results-1.json"


def test_the_published_schema_is_that_of_the_models() -> None:
    published = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert published == results.json_schema(), "make it again with: trl-compat schema > " + str(
        SCHEMA
    )


def test_what_is_written_validates(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))
    assert results.read(path) == document(cell())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', "null"])
def test_a_corrupt_file_is_one_sentence_with_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="not a results file of schema version 1"):
        results.read(path)


def test_the_committed_results_validate() -> None:
    path = ROOT / "reports" / "results.json"
    found = results.read(path)
    assert found is not None
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("/home/alice/x.py", "alice"),
        ("/Users/alice/.cache/trl-compat/environments/a/lib", "alice"),
        ("token hf_abcdefghijklmnop here", "hf_abc"),
        ("/var/tmp/trl-compat-1a2b3c/home", "/var/tmp"),
    ],
)
def test_scrubbing_takes_out_what_is_private(text: str, secret: str) -> None:
    assert secret not in results.scrub(text)


@given(st.text())
def test_any_text_makes_well_formed_reports(text: str) -> None:
    shown = document(cell(reason=text, outcome=Outcome.CRASH, agrees=False))
    from xml.etree import ElementTree as ET

    ET.fromstring(junit.render(shown))


def test_the_table_says_the_word_and_escapes() -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    text = markdown.render(document(cell()), catalogue)
    assert "❌ fails" in text
    assert "<script>" not in text


def test_a_fix_counts_as_proven_only_if_every_broken_cell_has_one() -> None:
    proof = cell(fixed=True, fix="f", outcome=Outcome.PASS)
    other = cell(model="tiny-mistral")
    both = tables.summary_of([cell(), proof], "s", "ppo-zero3-save")
    assert both is not None
    assert both.fixed
    half = tables.summary_of([cell(), proof, other], "s", "ppo-zero3-save")
    assert half is not None
    assert not half.fixed


def test_a_control_does_not_speak_for_a_stack() -> None:
    control = cell(control=True, outcome=Outcome.PASS)
    found = tables.summary_of([control, cell()], "s", "ppo-zero3-save")
    assert found is not None
    assert found.outcome is Outcome.REPRODUCED


def test_pages_say_of_each_stack_when_where_and_how_it_was_run() -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = merged()
    text = markdown.render(shown, catalogue)
    assert "run 2026-01-01 to 2026-01-02 on 2 machines ([more](#the-runs))" in text
    assert "| 1 | 2026-01-01 | Linux, here, 1 GiB, no GPU | 1 of 1 stacks | `run here`" in text
    assert "| 2 | 2026-01-02 | Linux, elsewhere, 8 GiB, H200 | 1 of 1 stacks | `run there`" in text
    rows = [line for line in text.splitlines() if line.endswith(("| 1 |", "| 2 |"))]
    assert [row.split("|")[1].strip() for row in rows] == ["`s`", "`t`"]
    assert [row.split("|")[-2].strip() for row in rows] == ["1", "2"]
    page = html.render(shown, catalogue)
    assert "<td>Linux, elsewhere, 8 GiB, H200</td><td><code>run there</code>" in page
    data = page_data.embedded(shown, catalogue)
    told = [
        data["runs"][dict(zip(data["columns"], row, strict=True))["run"]] for row in data["rows"]
    ]
    assert [run["where"] for run in told] == [
        "Linux, here, 1 GiB, no GPU",
        "Linux, elsewhere, 8 GiB, H200",
    ]
    found = account.of(shown, catalogue["ppo-zero3-save"])
    assert found.evidence == (
        "cpu-gloo × 2 on Linux, here, 1 GiB, no GPU, 2026-01-01",
        "cpu-gloo × 2 on Linux, elsewhere, 8 GiB, H200, 2026-01-02",
    )


def test_a_file_from_before_runs_were_kept_is_told_by_its_head() -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    text = markdown.render(document(cell()), catalogue)
    assert "run 2026-01-01 on Linux, c, 1 GiB, no GPU ([more](#the-runs))" in text
    assert "may be from earlier ones" in text
