"""A range without an upper end is seen at its newest release, or its record says why not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.harness.conftest import ROOT
from trl_compat import advisories, results
from trl_compat.advisories import Advisory, Catalogue
from trl_compat.publishing.lint import Complaint, lint
from trl_compat.shipped import releases

REPRODUCTIONS = ROOT / "tests" / "reproductions"
SYMPTOM = {"exception": "E", "message": "m", "where": "w"}
HALF_OPEN = {"symptom": "s", "versions": {"trl": "<=0.12.2", "transformers": ">=4.45.0"}}
OPEN = {"symptom": "s", "versions": {"trl": ">=0.11.0"}}
ENDED = {"symptom": "s", "versions": {"trl": "<=0.12.2", "transformers": "<5.0.0"}}
WHY = "transformers removed the class."


def record(**changes: Any) -> Advisory:
    return Advisory.model_validate(
        {
            "id": "a-failure",
            "title": "t",
            "summary": "s",
            "severity": "crash-late",
            "published": "2026-01-01",
            "cause": "c",
            "references": [],
            "symptoms": {"s": SYMPTOM},
            "masks": True,
            **changes,
        }
    )


def complaints(**changes: Any) -> list[Complaint]:
    catalogue = Catalogue(records={"a-failure": record(**changes)})
    return lint(catalogue, releases.known(), None, REPRODUCTIONS)


def test_the_records_of_the_project_have_neither_errors_nor_warnings() -> None:
    own = advisories.load(ROOT / "advisories", REPRODUCTIONS)
    document = results.read(ROOT / "reports" / "results.json")
    assert lint(own, releases.known(), document, REPRODUCTIONS) == []


def test_an_open_end_beside_another_that_is_not_is_a_warning() -> None:
    (found,) = complaints(affected=[HALF_OPEN])
    assert found.level == "warning"
    assert "affected 1: transformers has no upper end" in found.text


def test_a_warning_is_silent_once_the_record_says_why() -> None:
    assert complaints(affected=[HALF_OPEN], open_ends={"transformers": WHY}) == []


def test_an_explanation_is_of_one_package() -> None:
    open_ = {"trl": ">=0.11.0", "transformers": ">=4.45.0"}
    both = {"symptom": "s", "versions": {"accelerate": "<1.3.0", **open_}}
    (found,) = complaints(affected=[both], open_ends={"transformers": WHY})
    assert "trl has no upper end" in found.text


@pytest.mark.parametrize("package", ["trl", "torch"])
def test_an_explanation_that_is_not_needed_is_a_complaint(package: str) -> None:
    (found,) = complaints(affected=[ENDED], open_ends={package: WHY})
    assert found.level == "warning"
    assert f"open_ends: no block has an open end of {package}" in found.text


def test_a_block_that_has_no_end_at_all_cannot_be_explained_away() -> None:
    found = complaints(affected=[OPEN], open_ends={"trl": WHY})
    assert [one.level for one in found] == ["error", "warning"]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"transformer": WHY}, "unknown package 'transformer'"), ({"trl": " "}, "say why")],
)
def test_an_explanation_names_a_package_and_says_something(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        record(affected=[HALF_OPEN], open_ends=given)
