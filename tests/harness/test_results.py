"""results.json: the published schema, scrubbing, and files that are not what they should be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import trl_compat
from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document, merged
from tests.harness.report_page import cell_of
from tests.harness.written import version_1
from trl_compat import results
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.report import account, html, junit, markdown, page_data, tables

SCHEMAS = Path(trl_compat.__file__).parent / "schema"
MODELS: dict[str, type[BaseModel]] = {
    "results-2": results.Head,
    "stack-results-2": results.StackFile,
}


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def data_in(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODELS)
def test_the_published_schema_is_that_of_the_models(name: str) -> None:
    made = MODELS[name].model_json_schema(mode="serialization")
    option = " --stack-results" if name.startswith("stack") else ""
    assert schema(name) == made, f"run: trl-compat schema{option} > {SCHEMAS / name}.json"


def test_what_is_written_validates(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    jsonschema.validate(data_in(path), schema("results-2"))
    jsonschema.validate(data_in(tmp_path / "results" / "s.json"), schema("stack-results-2"))
    assert results.read(path) == document(cell())


def test_the_committed_results_validate() -> None:
    path = ROOT / "reports" / "results.json"
    found = results.read(path)
    assert found is not None
    assert found.cells
    head = data_in(path)
    jsonschema.validate(head, schema(f"results-{head['schema_version']}"))
    for stack in head["stacks"].values():
        if file := stack.get("file"):
            jsonschema.validate(data_in(path.parent / file), schema("stack-results-2"))


def test_what_is_written_twice_is_touched_once(tmp_path: Path) -> None:
    shown = merged()
    results.write(tmp_path / "results.json", shown)
    files = [tmp_path / "results.json", *(tmp_path / "results").iterdir()]
    assert len(files) == 3
    for path in files:
        os.utime(path, (1, 1))
    changed = cell(run="here", reason="another")
    results.write(
        tmp_path / "results.json", shown.model_copy(update={"cells": [changed, *shown.cells[1:]]})
    )
    touched = {path.name for path in files if path.stat().st_mtime != 1}
    assert touched == {"s.json"}  # the head says no more of it than before


def test_two_results_in_a_folder_have_their_own_files(tmp_path: Path) -> None:
    for name, outcome in (("old", Outcome.PASS), ("new", Outcome.CRASH)):
        results.write(tmp_path / f"{name}.json", document(cell(outcome=outcome)))
    for name, outcome in (("old", Outcome.PASS), ("new", Outcome.CRASH)):
        found = results.read(tmp_path / f"{name}.json")
        assert found is not None
        assert [one.outcome for one in found.cells] == [outcome]


def test_a_stack_is_read_alone(tmp_path: Path) -> None:
    results.write(tmp_path / "results.json", merged())
    (tmp_path / "results" / "s.json").write_text("{")
    found = results.read_stack(tmp_path, "t")
    assert found is not None
    assert [one.id for one in found.cells] == ["t"]
    assert found.resolved == merged().stacks["t"]
    assert results.read_stack(tmp_path, "nothing") is None
    for name in ("s", "../results", "/etc/passwd"):
        with pytest.raises(BadInput):
            results.read_stack(tmp_path, name)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', "null", '{"a": "' + "x"])
def test_a_corrupt_file_is_one_sentence_with_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"not a results file of schema version 2 .*; move it away"):
        results.read(path)


def test_a_corrupt_file_of_version_1_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for data in ({"schema_version": 1}, {**version_1(merged()), "runs": []}):
        path.write_text(json.dumps(data))
        with pytest.raises(BadInput, match="not a results file of schema version 1"):
            results.read(path)


def test_version_1_is_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(version_1(merged())))
    assert results.read(path) == merged()


def test_a_newer_version_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    for file in (tmp_path / "results" / "s.json", path):
        file.write_text(json.dumps({**data_in(file), "schema_version": 3, "new": []}))
        with pytest.raises(BadInput, match=r"schema version 3 is newer than 2.*update trl-compat"):
            results.read(path)


def damaged(path: Path, name: str) -> None:
    """Does to the file of a stack what must not cost the other one anything."""
    whole, head = path.read_text(), path.parents[1] / "results.json"
    match name:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_text(whole[:200])
        case "folder":
            path.unlink()
            path.mkdir()
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "link":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to("elsewhere")
        case "deep":
            path.write_text('{"cells":' + "[" * 100_000)
        case "bytes":
            path.write_bytes(b"\xff\x00" + path.read_bytes())
        case "of another stack":
            path.write_text(json.dumps({**json.loads(whole), "stack": "t", "cells": []}))
        case "cells of another stack":
            path.write_text(whole.replace('"stack": "s", "failure"', '"stack": "t", "failure"'))
        case _:
            data = json.loads(head.read_text())
            data["stacks"]["s"]["file"] = name
            head.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "what",
    [
        *("missing", "truncated", "folder", "pipe", "link", "deep", "bytes"),
        *("of another stack", "cells of another stack"),
        *("../s.json", "/etc/passwd", "results/../results/s.json", "results/t.json", "", "s.json"),
    ],
)
def test_the_damaged_file_of_a_stack_costs_no_other_anything(tmp_path: Path, what: str) -> None:
    path = tmp_path / "results.json"
    results.write(path, merged())
    damaged(tmp_path / "results" / "s.json", what)
    with pytest.raises(BadInput) as raised:
        results.read(path)
    said = str(raised.value)
    assert "s.json" in said or "the file of the stack 's'" in said
    assert said.endswith("make it again with: nox -s matrix -- --stack s")
    assert "\n" not in said
    found = results.read_leniently(path)
    assert found is not None
    assert found.unread == {"s": said}
    assert [one.id for one in found.cells] == ["t"]
    assert found.summary == {"reproduced": 1}
    assert set(found.stacks) == {"s", "t"}


def test_the_folder_of_the_stacks_may_not_be_a_link(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    (tmp_path / "results").symlink_to("elsewhere")
    with pytest.raises(BadInput, match="symbolic link"):
        results.read(path)
    with pytest.raises(BadInput, match="symbolic link"):
        results.write(path, document())
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_a_lost_head_does_not_lose_the_stacks(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    path.unlink()
    with pytest.raises(BadInput, match=r"missing, but .* has results of stacks"):
        results.read(path)


@pytest.mark.parametrize("name", ["../s", "S", "a/b", "", "x" * 97])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "results.json"
    results.write(path, document(cell()))
    data = data_in(path)
    data["stacks"] = {name: data["stacks"]["s"]}
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match="is not the name of a stack"):
        results.read(path)
    shown = document()
    with pytest.raises(ValueError, match="is not the name of a stack"):
        results.write(path, shown.model_copy(update={"stacks": {name: shown.stacks["s"]}}))


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
    told = [data["runs"][cell_of(data, n)["run"]] for n in range(data["count"])]
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


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (("cpu-gloo × 2",), "Evidence from GPUs is missing: every cell ran on CPU ranks."),
        (("cpu-gloo × 2", "cuda-nccl × 2"), "1 of the 2 cells that ran did so on GPUs."),
        (("cuda-gloo × 2, shared GPU", "none"), "1 of the 1 cells that ran did so on GPUs."),
    ],
)
def test_reports_say_whether_there_is_evidence_from_gpus(
    evidence: tuple[str, ...], told: str
) -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = document(*(cell(id=f"c{n}", evidence=text) for n, text in enumerate(evidence)))
    assert told in markdown.render(shown, catalogue)
    assert told in html.render(shown, catalogue)


def test_where_nothing_ran_nothing_is_said_of_gpus() -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = document(cell(evidence="none", outcome=Outcome.UNAVAILABLE))
    assert "GPUs is missing" not in markdown.render(shown, catalogue)
