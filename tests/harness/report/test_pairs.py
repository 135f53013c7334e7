"""Which pairs of minor releases grids have covered, and how that is shown."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tests.harness import made_results
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.report import pairs
from trl_compat.results import Results

# trl, transformers, grid, outcomes of its cells
STACKS = {
    "a": ("0.9.6", "4.40.1", "g", [Outcome.PASS, Outcome.UNAVAILABLE]),
    "b": ("0.9.6", "5.0.0", "g", [Outcome.UNRESOLVABLE]),
    "c": ("1.10.0", "4.40.2", "h", [Outcome.UNAVAILABLE]),
    "by-hand": ("1.10.2", "5.0.1", "", [Outcome.REPRODUCED]),
    "elsewhere": ("1.11.0", "5.0.1", "", [Outcome.PASS]),
    "commit": ("git+https://github.com/a/b@0123456", "4.40.1", "", [Outcome.PASS]),
}


def document() -> Results:
    stacks = {
        name: SimpleNamespace(**dict.fromkeys(SHOWN_PACKAGES, "1.0.0") | {"trl": trl, "grid": grid}
                              | {"transformers": transformers})
        for name, (trl, transformers, grid, _) in STACKS.items()
    }  # fmt: skip
    cells = [
        made_results.cell(id=f"{name}-{number}", stack=name, outcome=outcome)
        for name, (*_, outcomes) in STACKS.items()
        for number, outcome in enumerate(outcomes)
    ]
    return made_results.document(*cells).model_copy(update={"stacks": stacks})


def trl_and_transformers(grid: str | None = None) -> pairs.PairCoverage:
    found = pairs.pairs(document(), grid)
    return next(p for p in found if (p.one, p.other) == ("trl", "transformers"))


def test_each_pair_of_minors_is_executed_or_unresolvable_or_not_run() -> None:
    found = trl_and_transformers()
    assert (found.ones, found.others) == (("0.9", "1.10"), ("4.40", "5.0"))
    assert found.executed == {("0.9", "4.40"), ("1.10", "5.0")}
    assert found.unresolvable == {("0.9", "5.0")}
    assert found.not_run == (("1.10", "4.40"),)
    assert found.total == 4


def test_every_pair_of_packages_is_counted() -> None:
    assert len(pairs.pairs(document())) == 15


def test_one_grid_has_its_own_values() -> None:
    assert trl_and_transformers("g").ones == ("0.9",)
    assert pairs.pairs(document(), "none") == []


def test_the_data_is_plain() -> None:
    data = trl_and_transformers().as_data()
    assert json.loads(json.dumps(data)) == data
    assert data["unresolvable"] == [["0.9", "5.0"]]
    assert data["not-run"] == [["1.10", "4.40"]]


def test_markdown_has_counts_and_a_mark_for_each_pair() -> None:
    lines = list(pairs.markdown(document()))
    assert "| trl × transformers | 4 | 2 | 1 | 1 |" in lines
    assert "| TRL | 4.40 | 5.0 |" in lines
    assert "| 0.9 | ● | ✕ |" in lines
    assert "| 1.10 | · | ● |" in lines


def test_results_without_grids_say_nothing_of_them() -> None:
    assert list(pairs.markdown(made_results.document(made_results.cell()))) == []
