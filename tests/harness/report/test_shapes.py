"""What every renderer shows: order of versions, releases, proven sets, what was not run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tests.harness.conftest import ROOT
from tests.harness.large_results import large
from tests.harness.made_results import cell, document
from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.report import account, conclusion, html, markdown, tables
from trl_compat.report.coverage import coverage
from trl_compat.report.proven import proven_sets
from trl_compat.report.release_summary import Told, by_variant, summaries, tell
from trl_compat.results import CellResult, Results
from trl_compat.shipped import releases

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


def named(releases: Iterable[str], word: str = "failing") -> dict[str, str]:
    return dict.fromkeys(releases, word)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index with ten releases."""
    dates = {f"1.{minor}": "2026-01-01" for minor in range(10)} | {"1.4rc1": "2026-01-01"}
    known = releases.Releases("2026-02-01", {"trl": dates}, {"trl": {"1.8": "broken"}})
    monkeypatch.setattr(releases, "known", lambda: known)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("chosen", "others", "said"),
    [
        ([], {}, ""),
        (["1.2"], {}, "1.2"),
        (["1.2", "1.3", "1.4"], {}, "1.2 – 1.4"),
        # 1.4rc1 and 1.8 are not what an installer takes.
        (["1.7", "1.9"], {}, "1.7 – 1.9"),
        (["1.2", "1.4"], {}, "1.2, 1.4 (between them 1.3 not run)"),
        (["1.0", "1.9"], {}, "1.0, 1.9 (between them 1.1 – 1.7 not run)"),
        (
            ["1.0", "1.2", "1.4", "1.6", "1.9"],
            {},
            "1.0, 1.2, 1.4, 1.6, 1.9 (between them 4 releases not run)",
        ),
        (
            ["1.0", "1.1", "1.6"],
            {"1.2": "masked by x", "1.3": "masked by x", "1.4": "working", "1.9": "not applicable"},
            "1.0 – 1.1, 1.6 (between them 1.2 – 1.3 masked by x; 1.4 working; 1.5 not run)",
        ),
        (
            ["1.0", "1.2"],
            {"1.1": "not run, out of reach"},
            "1.0, 1.2 (between them 1.1 not run, out of reach)",
        ),
        # A release that the list does not know, and a yanked one, were run.
        (["1.8", "1.9", "1.10"], {}, "1.8 – 1.10"),
        ([COMMIT, "1.2"], {"1.3": "working"}, "1.2, commit 724acb971"),
        ([COMMIT], {}, "commit 724acb971"),
    ],
)
def test_releases_are_told_with_what_lies_between(
    chosen: list[str], others: dict[str, str], said: str
) -> None:
    assert str(tell(chosen, named(chosen) | others)) == said


@given(st.dictionaries(st.sampled_from(RELEASES), st.sampled_from(["failing", "masked by x"])))
def test_nothing_is_claimed_of_a_release_that_was_not_run(seen: dict[str, str]) -> None:
    chosen = {release for release, word in seen.items() if word == "failing"}
    told = tell(chosen, seen)
    there = sorted({*releases.known().final("trl"), *map(Version, seen)})
    said = []
    for part in told.named:
        first, _, last = part.partition(" – ")
        said += [v for v in there if Version(first) <= v <= Version(last or first)]
    assert said == sorted(map(Version, chosen))
    inside = [v for v in there if said and said[0] < v < said[-1] and v not in said]
    masked = [r for r, word in seen.items() if word == "masked by x" and Version(r) in inside]
    assert ("masked by x" in str(told)) == bool(masked)
    assert ("not run" in str(told)) == (len(inside) > len(masked))


def test_the_releases_between_two_that_fail_are_not_taken_for_good() -> None:
    found = over(
        {"a": "0.13.0", "b": "0.14.0", "c": "0.18.2", "d": "0.28.0"},
        on("a", Outcome.REPRODUCED),
        on("b", Outcome.MASKED, masked_by="accelerator-init-order-deepspeed"),
        on("c", Outcome.PASS),
        on("d", Outcome.REPRODUCED),
    )
    told = (
        "0.13.0, 0.28.0 (between them 0.14.0 masked by accelerator-init-order-deepspeed; 0.18.2 "
        "working; 0.15.0 – 0.18.1, 0.19.0 – 0.27.2 not run)"
    )
    (fails, *_) = summaries(found, "ppo-zero3-save")
    assert f"{fails.words} TRL {fails.releases}" == f"Fails on TRL {told}"
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    said = " ".join(conclusion.summary_lines(found, found.cells, catalogue))
    assert f"ppo-zero3-save: TRL {told}" in said
    assert f"Fails on TRL {told}" in markdown.render(found, catalogue)
    page = html.render(found, catalogue)
    assert "TRL 0.13.0, 0.28.0<small>between them 0.14.0 masked by accelerator-init-" in page
    assert f"Fails on TRL {told}" in account.of(found, catalogue["ppo-zero3-save"]).release_summary


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
    said = {s.outcome: str(s.releases) for s in summaries(found, "ppo-zero3-save")}
    assert said == {Outcome.REPRODUCED: "1.0", Outcome.PASS: "1.1"}


def test_variants_are_folded_apart() -> None:
    found = over(
        {"a": "1.0", "b": "1.1"},
        on("a", Outcome.REPRODUCED),
        on("b", Outcome.REPRODUCED),
        on("b", Outcome.PASS, variant="zero2"),
    )
    rows = {row.variant: row.found for row in by_variant(found, "ppo-zero3-save")}
    assert rows["zero3"] == ((Outcome.REPRODUCED, Told(("1.0 – 1.1",))),)
    assert rows["zero2"] == ((Outcome.PASS, Told(("1.1",))),)


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


def test_a_set_that_could_not_be_reached_was_not_run() -> None:
    found = over({"a": "1.0"}, on("a", Outcome.UNAVAILABLE))
    (only,) = proven_sets(found, ["ppo-zero3-save"])
    assert (only.proven, only.unproven, only.not_run) == (False, (), ("ppo-zero3-save",))


def test_a_proven_set_of_a_release_comes_before_a_newer_one_that_is_not() -> None:
    found = over(
        {"good": "1.0", "bad": "1.0"}, on("good", Outcome.PASS), on("bad", Outcome.OTHER_FAILURE)
    )
    assert [s.stack for s in proven_sets(found, ["ppo-zero3-save"])] == ["good"]


def test_what_was_not_run_is_counted(ours: Catalogue) -> None:
    left = results.NotRunResult(
        stack="a", failure="ppo-zero3-save", variant="zero2", model="m", reason="too large"
    )
    unreached = on("b", Outcome.UNAVAILABLE)
    found = over({"a": "1.0", "b": "1.1"}, on("a", Outcome.PASS), unreached, not_run=[left])
    seen = coverage(found, ours, "ppo-zero3-save")
    assert (seen.possible, seen.run, seen.left_out) == (8, 1, (("too large", 1),))
    assert seen.unreached == (("not run (out of reach)", 1),)
    assert seen.not_selected == 5
    assert "1 of " in markdown.render(found, ours)
    assert "- 1 not run (out of reach)" in markdown.render(found, ours)


def test_markdown_stays_below_the_size_that_is_shown(
    ours: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    every = markdown.details(found, ours)
    name, whole = max(every.items(), key=lambda pair: len(pair[1]))
    assert "../evidence/" in whole
    monkeypatch.setattr(markdown, "SIZE_LIMIT", len(whole.encode()) - 1)
    short = markdown.details(found, ours)[name]
    assert "evidence/" not in short
    assert "../compatibility.html" in short
    assert len(short) < len(whole) / 2


def test_markdown_of_a_grid_is_read_by_people(ours: Catalogue) -> None:
    grid = large()
    text = markdown.render(grid, ours)
    minors = {tables.minor_of(stack.trl) for stack in grid.stacks.values()}
    assert table_lengths(text)[0] == len(minors) < 50
    assert len(text.encode()) < 100_000
    for name, shown in {"": text, **markdown.details(grid, ours)}.items():
        assert max(table_lengths(shown)) <= 120, name
        assert len(shown.encode()) <= markdown.SIZE_LIMIT
    # Every cell is in the file of its failure all the same.
    wanted = [cell for cell in grid.cells if cell.failure == "ppo-zero3-save" and cell.log]
    shown = markdown.details(grid, ours)["failures/ppo-zero3-save.md"]
    assert shown.count("](../evidence/") == len(wanted)


def table_lengths(text: str) -> list[int]:
    """How many rows each table has."""
    blocks = "\n".join(line if line.startswith("|") else "" for line in text.splitlines())
    return [len(block.splitlines()) - 2 for block in re.split(r"\n{2,}", blocks.strip())]


def test_the_worst_stack_speaks_for_a_minor_release(ours: Catalogue) -> None:
    releases = {f"s{n}": f"1.{n % 4}.0" for n in range(40)}
    cells = [on(name, Outcome.PASS) for name in releases if name != "s5"]
    found = over(releases, *cells, on("s5", Outcome.REPRODUCED))
    text = markdown.render(found, ours)
    assert "| 1.1 | 10 | ❌ fails, 1 of 10 |" in text
    assert "| 1.2 | 10 | ✅ works |" in text
    page = html.render(found, ours)
    assert "</span> fails<small>1 of 10</small>" in page
    assert page.count('class="minor"') == 4
    few = over({"s0": "1.0"}, on("s0", Outcome.PASS))
    assert 'class="minor"' not in html.render(few, ours)


def test_markdown_makes_no_link_or_picture_of_what_was_recorded(ours: Catalogue) -> None:
    hostile = cell(outcome=Outcome.NOT_APPLICABLE, reason="![x](https://x.example/y) <b> | c")
    text = markdown.render(document(hostile), ours)
    assert "![x](" not in text
    assert "!\\[x\\](https://x.example/y) &lt;b> \\| c" in text
