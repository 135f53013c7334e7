"""What is derived from advisories is derived from all of them, and derived files do not drift."""

from __future__ import annotations

import datetime
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from packaging.version import Version

from tests.harness.conftest import ROOT
from tests.harness.written import committed
from trl_compat import advisories, results
from trl_compat.advisories import Advisory, Catalogue, compiling
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.publishing import compiled, osv
from trl_compat.publishing.events import Events, events
from trl_compat.publishing.lint import Complaint, lint
from trl_compat.shipped import records, releases

PACKAGE = ROOT / "src" / "trl_compat"
# The official schema of the format, unchanged: validation/schema.json of ossf/osv-schema 1.7.5.
OSV_SCHEMA = ROOT / "tests" / "harness" / "data" / "osv-1.7.5.json"


@cache
def own() -> Catalogue:
    return advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


@cache
def document() -> results.Results:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    return found


def shipped(name: str) -> object:
    return json.loads((PACKAGE / "shipped" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_advisories_that_are_shipped_are_those_of_the_sources() -> None:
    data = json.loads(json.dumps(compiling.advisories(own())))
    assert shipped("advisories") == data, "run: trl-compat advisories compile"


def test_the_results_that_are_shipped_are_the_committed_ones(tmp_path: Path) -> None:
    # Not those of the working tree: whoever runs the matrix has others, and that is no fault.
    document = committed(tmp_path)
    data = json.loads(json.dumps(compiled.results(document, own())))
    assert shipped("results") == data, "run: trl-compat advisories compile"
    data = json.loads(json.dumps(compiled.seconds(document)))
    assert shipped("seconds") == data, "run: trl-compat advisories compile"


def test_the_published_schema_is_that_of_the_models() -> None:
    path = PACKAGE / "schema" / "advisory-1.json"
    assert json.loads(path.read_text(encoding="utf-8")) == Advisory.model_json_schema(), (
        f"run: trl-compat schema --advisory > {path.relative_to(ROOT)}"
    )


def test_every_advisory_of_ours_passes_the_lint() -> None:
    found = lint(own(), releases.known(), document(), ROOT / "tests" / "reproductions")
    assert [complaint for complaint in found if complaint.level == "error"] == []


def test_osv_records_validate_against_the_official_schema(tmp_path: Path) -> None:
    schema = json.loads(OSV_SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    written = osv.export(tmp_path, own(), releases.known(), document())
    assert len(written) == len(own().records)
    for path in written:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert [error.message for error in validator.iter_errors(record)] == []
        assert path.name == f"{record['id']}.json"
        assert all(affected["ranges"] for affected in record["affected"])


def test_osv_keeps_what_it_cannot_say_beside_the_range() -> None:
    record = osv.record(own()["ppo-zero3-save"], releases.known(), document())
    five = record["affected"][3]
    assert five["package"]["name"] == "trl"
    assert five["ranges"][0]["events"] == [{"introduced": "0.12.0"}, {"last_affected": "1.12.0"}]
    assert five["database_specific"]["only_together_with"] == {"transformers": ">=5.0.0"}
    assert five["database_specific"]["conditions"]["strategy"] == ["deepspeed"]
    outcomes = {e["stack"]: e["outcome"] for e in record["database_specific"]["evidence"]}
    assert (outcomes["trl-0.9.6"], outcomes["trl-0.10.1"]) == ("pass", "reproduced")


@pytest.mark.parametrize(
    ("range_", "wanted"),
    [
        (">=0.11.0,<=0.12.2", [Events("0.11.0", last_affected="0.12.2")]),
        (">=0.14.0,<0.18.0", [Events("0.14.0", fixed="0.18.0")]),
        (">=0.14.0", [Events("0.14.0")]),
        ("<0.0.3", [Events("0", fixed="0.0.3")]),
        ("==0.10.1", [Events("0.10.1", last_affected="0.10.1")]),
        (
            ">=0.11.4,<0.13.0,!=0.12.1",
            [Events("0.11.4", last_affected="0.12.0"), Events("0.12.2", fixed="0.13.0")],
        ),
        (">=7", []),
    ],
)
def test_ranges_become_events(range_: str, wanted: list[Events]) -> None:
    assert events("trl", range_, releases.known()) == wanted


BASE: dict[str, Any] = {
    "id": "a-failure",
    "title": "t",
    "summary": "s",
    "severity": "crash-late",
    "published": "2026-01-01",
    "cause": "c",
    "references": [],
    "symptoms": {
        "one": {"exception": "E", "message": "m", "where": "w"},
        "two": {"exception": "E", "message": "m", "where": "w"},
    },
    "masks": True,
}
ONE = {"symptom": "one", "versions": {"trl": ">=0.11.0,<=0.12.2"}, "conditions": {"zero_stage": 3}}


def complaints(**changes: Any) -> list[Complaint]:
    advisory = Advisory.model_validate({**BASE, "affected": [ONE], **changes})
    catalogue = Catalogue(records={advisory.id: advisory})
    return lint(catalogue, releases.known(), document(), ROOT / "tests" / "reproductions")


def test_a_clean_record_has_no_complaints() -> None:
    assert complaints() == []


FIX = {
    "name": "save",
    "entry": "trl_compat.fixes.ppo_zero3_save:apply",
    "summary": "",
    "snippet": "",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"affected": [{**ONE, "versions": {"trl": "<=0.12.7"}}]}, "trl 0.12.7 was never released"),
        (
            {"affected": [{**ONE, "versions": {"trl": ">=0.13.0,<0.12.0"}}]},
            "no release of trl is in",
        ),
        ({"available": {"trl": ">=0.10"}}, "available: trl 0.10 was never released"),
        ({"affected": [ONE, {**ONE, "symptom": "two"}]}, "1 and 2 overlap with different symptoms"),
        ({"affected": [ONE, ONE]}, "affected 1 and 2 overlap and are equivalent"),
        ({"affected": [{**ONE, "versions": {"trl": ">=0.11.0"}}]}, "trl has no upper end"),
        ({"avoid": [{"upgrade": {"trl": ">=0.12.0"}}]}, "avoid 1 leads to releases of affected 1"),
        (
            {"affected": [{**ONE, "conditions": {"facet": "x"}}]},
            "'facet' exists only in the reproduction",
        ),
        ({"modified": "2025-01-01"}, "2025-01-01 is before it was published"),
        ({"published": None}, "no publication date"),
        (
            {
                "fixes": [
                    {
                        "name": "f",
                        "entry": "trl_compat.fixes.nothing:apply",
                        "summary": "",
                        "snippet": "",
                    }
                ]
            },
            "module trl_compat.fixes.nothing does not exist",
        ),
        (
            {
                "fixes": [
                    {
                        "name": "f",
                        "entry": "trl_compat.fixes.ppo_zero3_save:no",
                        "summary": "",
                        "snippet": "",
                    }
                ]
            },
            "ppo_zero3_save.py has no function no",
        ),
        (
            {
                "wrong_fixes": [
                    {"name": "f", "entry": "reproduction:no", "why": "", "symptom": "one"}
                ]
            },
            "module reproduction does not exist",
        ),
        (
            {
                "reproduction": {"module": "ppo_zero3_save", "variants": {"a": {}}},
                "fixes": [
                    {
                        "name": "f",
                        "entry": "trl_compat.fixes.ppo_zero3_save:apply",
                        "summary": "",
                        "snippet": "",
                        "variants": ["b"],
                    }
                ],
            },
            "'b' is not one of the variants",
        ),
        ({"advice": "Take TRL 0.17.0 or later."}, "advice: names 0.17; name releases as a range"),
        (
            {"avoid": [{"upgrade": {"trl": ">=0.13.0"}, "note": "With FSDP1, 0.18.0 is enough."}]},
            "note of avoid 1: names 0.18",
        ),
        ({"fixes": [FIX]}, "save: has no standalone form"),
        ({"fixes": [{**FIX, "standalone": "def ("}]}, "its standalone form is not valid Python"),
        (
            {"fixes": [{**FIX, "standalone": "from trl_compat.fixes import x"}]},
            "its standalone form imports this package",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_said(changes: dict[str, Any], said: str) -> None:
    assert any(said in complaint.text for complaint in complaints(**changes)), complaints(**changes)


def test_an_overlap_may_have_its_reason() -> None:
    first = {**ONE, "precedence": "what is seen first"}
    assert complaints(affected=[first, {**ONE, "symptom": "two"}]) == []


def test_symptoms_of_two_invariants_do_not_overlap() -> None:
    symptoms = {
        name: {"violates": name, "measured": {"projection": [0, 0.5]}} for name in ("ranks", "step")
    }
    affected = [{**ONE, "symptom": name} for name in symptoms]
    assert complaints(symptoms=symptoms, affected=affected) == []


def test_an_open_end_stands_where_the_newest_release_was_seen_to_fail() -> None:
    symptom = {"exception": "E", "message": "m", "where": "w"}
    found = complaints(
        id="unwrap-double-yield",
        symptoms={"hooks-lost": symptom},
        affected=[{"symptom": "hooks-lost", "versions": {"trl": ">=0.8.2"}}],
    )
    assert found == []


def test_one_broken_record_is_left_out_and_named(project_folder: Path) -> None:
    folder, reproductions = (
        project_folder / "advisories",
        project_folder / "tests" / "reproductions",
    )
    (folder / "saving.yaml").write_text("id: saving\nnonsense: true\n")
    catalogue, broken = advisories.load_leniently(folder, reproductions)
    assert list(catalogue.records) == ["early-stop"]
    assert len(broken) == 1
    assert "saving.yaml:2: unknown key 'nonsense'" in broken[0]
    with pytest.raises(BadInput, match=r"saving\.yaml:2"):
        advisories.load(folder, reproductions)


def test_a_withdrawn_record_is_kept_and_used_by_nothing(catalogue: Catalogue) -> None:
    day = datetime.date(2026, 1, 1)
    gone = {i: r.model_copy(update={"withdrawn": day}) for i, r in catalogue.records.items()}
    withdrawn = Catalogue(records=gone)
    assert (withdrawn.failures, withdrawn.masks) == ((), ())
    assert compiling.advisories(withdrawn)["records"] == []
    assert osv.record(gone["saving"], releases.known(), None)["withdrawn"] == "2026-01-01T00:00:00Z"


def test_a_shipped_record_is_found_by_its_id() -> None:
    assert records.shipped_record("ppo-zero3-save").severity == "crash-late"
    with pytest.raises(BadInput, match="did you mean 'ppo-zero3-save'"):
        records.shipped_record("ppo-zero-save")


def test_the_list_of_releases_is_made_of_the_index() -> None:
    file = {"upload_time": "2024-01-02T03:04:05", "yanked": False, "yanked_reason": None}
    gone = {**file, "yanked": True, "yanked_reason": "a\nslip"}
    listed = {"1.0": [file], "1.10": [file], "1.9": [gone], "2.0": []}
    documents = {package: {"releases": listed} for package in PACKAGES}
    found = releases.fetched(documents, "2026-01-01")
    assert [str(v) for v in found.of("trl")] == ["1.0", "1.9", "1.10"]
    assert str(found.newest("trl")) == "1.10"
    assert found.yanked["trl"] == {"1.9": "a slip"}
    assert found.doubt("trl", Version("1.9")) == "trl 1.9 was yanked from the index: a slip"
    assert found.doubt("trl", Version("3.0")) is None
    assert "trl 1.1 does not exist" in str(found.doubt("trl", Version("1.1")))
    assert releases.Releases(**json.loads(releases.written(found))) == found
