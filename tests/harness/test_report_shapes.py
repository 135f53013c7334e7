"""What every renderer shows: order of versions, folded ranges, proven sets, what was not run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.conftest import ROOT
from tests.harness.test_results import cell, document
from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.outcomes import Outcome
from trl_compat.report import markdown, tables
from trl_compat.report.coverage import coverage
from trl_compat.report.proven import proven_sets
from trl_compat.report.releases import by_variant, fold, standings
from trl_compat.results import CellResult, Results

COMMIT = "git+https://github.com/huggingface/trl@724acb971"
RELEASES = ["0.9.6", "0.10.1", "0.11.4", "1.12.0", "1.16.0"]


@pytest.fixture
def ours() -> Catalogue:
    return load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")


def over(stacks: dict[str, str], *cells: CellResult, **changes: Any) -> Results:
    """Results on stacks that differ in their TRL."""
    shown = document(*cells)
    made = {n: shown.stacks["s"].model_copy(update={"trl": v}) for n, v in stacks.items()}
    return shown.model_copy(update={"stacks": made, **changes})


def on(stack: str, outcome: Outcome, **changes: object) -> CellResult:
    return cell(id=f"{stack}-{changes}", stack=stack, outcome=outcome, **changes)


def test_releases_that_follow_one_another_fold_into_a_range() -> None:
    assert fold(RELEASES, RELEASES[1:4]) == ("0.10.1 – 1.12.0",)
    assert fold(RELEASES, ["0.9.6", "0.11.4", "1.12.0"]) == ("0.9.6", "0.11.4 – 1.12.0")
    assert fold([*RELEASES, COMMIT], ["1.16.0", COMMIT]) == ("1.16.0", "commit 724acb971")


@given(st.sets(st.sampled_from(RELEASES)))
def test_folding_claims_nothing_that_was_not_found(chosen: set[str]) -> None:
    said: list[str] = []
    for part in fold(RELEASES, chosen):
        first, _, last = part.partition(" – ")
        said += RELEASES[RELEASES.index(first) : RELEASES.index(last or first) + 1]
    assert said == [release for release in RELEASES if release in chosen]


def test_stacks_are_ordered_as_versions_with_the_newest_first() -> None:
    found = over({"a": "0.9.6", "b": "0.10.1", "c": COMMIT, "d": "1.2.0"})
    assert tables.newest_first(found) == ["d", "b", "a", "c"]


def test_the_worst_stack_speaks_for_a_release() -> None:
    found = over(
        {"a": "1.0", "b": "1.0", "c": "1.1"},
        on("a", Outcome.PASS),
        on("b", Outcome.REPRODUCED),
        on("c", Outcome.PASS),
    )
    said = {s.outcome: s.ranges for s in standings(found, "ppo-zero3-save")}
    assert said == {Outcome.REPRODUCED: ("1.0",), Outcome.PASS: ("1.1",)}


def test_variants_are_folded_apart() -> None:
    found = over(
        {"a": "1.0", "b": "1.1"},
        on("a", Outcome.REPRODUCED),
        on("b", Outcome.REPRODUCED),
        on("b", Outcome.PASS, variant="zero2"),
    )
    rows = {row.variant: row.found for row in by_variant(found, "ppo-zero3-save")}
    assert rows["zero3"] == ((Outcome.REPRODUCED, ("1.0 – 1.1",)),)
    assert rows["zero2"] == ((Outcome.PASS, ("1.1",)),)


def test_a_set_is_proven_only_if_everything_that_was_run_is_right() -> None:
    proof = {"fixed": True, "fix": "f"}
    found = over(
        {"fixed": "3", "masked": "2", "works": "1"},
        on("fixed", Outcome.REPRODUCED),
        on("fixed", Outcome.PASS, **proof),
        on("masked", Outcome.MASKED),
        on("works", Outcome.PASS),
    )
    sets = {s.stack: s for s in proven_sets(found, ["ppo-zero3-save", "another"])}
    assert list(sets) == ["fixed", "masked", "works"]
    assert sets["fixed"].proven
    assert sets["fixed"].with_fix == ("ppo-zero3-save",)
    assert not sets["masked"].proven
    assert sets["masked"].unproven == (("ppo-zero3-save", Outcome.MASKED),)
    assert sets["works"].not_run == ("another",)


def test_a_proven_set_of_a_release_comes_before_a_newer_one_that_is_not() -> None:
    found = over(
        {"good": "1.0", "bad": "1.0"}, on("good", Outcome.PASS), on("bad", Outcome.OTHER_FAILURE)
    )
    assert [s.stack for s in proven_sets(found, ["ppo-zero3-save"])] == ["good"]


def test_what_was_not_run_is_counted(ours: Catalogue) -> None:
    left = results.NotRunResult(
        stack="a", failure="ppo-zero3-save", variant="zero2", model="m", reason="too large"
    )
    found = over({"a": "1.0", "b": "1.1"}, on("a", Outcome.PASS), not_run=[left])
    seen = coverage(found, ours, "ppo-zero3-save")
    assert (seen.possible, seen.run, seen.left_out) == (8, 1, (("too large", 1),))
    assert seen.not_selected == 6


def test_markdown_stays_below_the_size_that_is_shown(
    ours: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    whole = markdown.render(found, ours)
    assert "evidence/" in whole
    monkeypatch.setattr(markdown, "SIZE_LIMIT", len(whole.encode()) - 1)
    short = markdown.render(found, ours)
    assert "evidence/" not in short
    assert "compatibility.html" in short
    assert len(short) < len(whole) / 2


def test_markdown_makes_no_link_or_picture_of_what_was_recorded(ours: Catalogue) -> None:
    hostile = cell(outcome=Outcome.NOT_APPLICABLE, reason="![x](https://x.example/y) <b> | c")
    text = markdown.render(document(hostile), ours)
    assert "![x](" not in text
    assert "!\\[x\\](https://x.example/y) &lt;b> \\| c" in text
