"""Checks are found in the code by what they register, and can be made toothless one by one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.check_sites import Site, in_module, mutants

MODULE = """
def outer(rank, moment):
    rank.precondition("ready", rank.size > 1, "alone")
    rank.check(f"loss-{moment}", 1 < 0, "another loss")

    def inner(name):
        rank.check(name, not rank.folder, "text")


class Thing:
    def method(self):
        self.rank.check("kept", self.kept, "lost")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def test_every_call_is_found_with_its_function_and_its_name(module: Path) -> None:
    assert [str(site) for site in in_module(module)] == [
        "module.outer: ready",
        "module.outer: loss-*",
        "module.outer.inner: *",
        "module.Thing.method: kept",
    ]


def test_a_name_made_at_run_time_is_known_by_its_fixed_parts(module: Path) -> None:
    loss = in_module(module)[1]
    assert loss.registers("loss-afterwards")
    assert not loss.registers("trained-afterwards")


@pytest.mark.parametrize("number", range(4))
def test_one_check_loses_its_teeth_and_no_other(module: Path, number: int) -> None:
    sites = in_module(module)
    [(asked, text)] = mutants(sites[number])
    before, after = conditions(MODULE), conditions(text)
    assert (asked, after[number]) == (before[number], "True")
    assert [b for n, b in enumerate(before) if n != number] == [
        a for n, a in enumerate(after) if n != number
    ]


def conditions(text: str) -> list[str]:
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    checks = [c for c in calls if isinstance(c.func, ast.Attribute)]
    return [ast.unparse(c.args[1]) for c in sorted(checks, key=lambda c: c.lineno)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a and (not b)", {"a and (not b)": "True", "a": "not b", "not b": "a"}),
        ("0 < a <= b", {"0 < a <= b": "True", "0 < a": "a <= b", "a <= b": "0 < a"}),
    ],
)
def test_each_part_of_a_condition_is_dropped_in_its_turn(
    tmp_path: Path, condition: str, expected: dict[str, str]
) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"rank.check('name', {condition}, 'text')\n", encoding="utf-8")
    (site,) = in_module(path)
    assert {asked: conditions(text)[0] for asked, text in mutants(site)} == expected


def test_a_check_of_the_runtime_is_told_from_one_of_a_reproduction(module: Path) -> None:
    from tests.harness.sabotages.cells import all_sites

    def stems(of_runtime: bool) -> set[str]:
        return {site.path.stem for site in all_sites() if site.of_runtime is of_runtime}

    assert {"strategies", "weights"} <= stems(True)
    assert "ppo_zero3_save" in stems(False)
    assert not Site(module, "check", "f", "x", 1).of_runtime
