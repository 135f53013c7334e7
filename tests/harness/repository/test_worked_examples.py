"""The worked examples of CONTRIBUTING, put into a copy of the project and run.

The invented failure is run as a cell runs it: the scenario is given a rank, unfixed, fixed and
wrongly fixed, on an affected and an unaffected release; only the stack is a tiny fake package, and
the ranks are not processes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import remedies
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Selection, plan
from trl_compat.cells.rank_records import RankRecord
from trl_compat.cells.verdict import decide
from trl_compat.runtime import context, signature
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks import matrix

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^```\w+ file=(?P<file>\S+)(?: under=(?P<key>\w+))?\n(?P<text>.*?)^```$", re.M | re.S
)
EXAMPLES = [match.groupdict() for match in BLOCK.finditer(TEXT)]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("advisories", "invariants", "tests/reproductions", "src/trl_compat/fixes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    for example in EXAMPLES:
        path = tmp_path / example["file"]
        if example["key"]:
            start = f"{example['key']}:\n"
            old = path.read_text(encoding="utf-8")
            assert start in old
            path.write_text(old.replace(start, start + example["text"], 1), encoding="utf-8")
        else:
            assert not path.exists(), "an example must not replace a file"
            path.write_text(example["text"], encoding="utf-8")
    return tmp_path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(copy: Path, *stacks: str, failure: str = "example-mean") -> dict[Any, Outcome | None]:
    table = matrix.load(copy / "matrix.yaml")
    catalogue = advisories.load(copy / "advisories", copy / "tests" / "reproductions")
    selection = Selection(stacks=stacks, failures=(failure,), models=("tiny-qwen2",))
    found = plan(table, catalogue, selection).cells
    return {(c.stack, c.variant, c.fix): c.expectation.outcome for c in found}


def test_the_examples_are_found() -> None:
    assert [example["file"] for example in EXAMPLES] == [
        "matrix.yaml",
        "advisories/example-mean.yaml",
        "tests/reproductions/example_mean.py",
        "src/trl_compat/fixes/example_mean.py",
    ]


def test_the_version_of_the_example_is_a_stack_with_cells(copy: Path) -> None:
    stack = "trl-1.16.0-torch-2.14"
    assert str(matrix.load(copy / "matrix.yaml").stacks[stack].version("torch")) == "2.14.0"
    assert cells(copy, stack, failure="unwrap-double-yield")


def test_the_advisory_of_the_example_predicts_its_cells(copy: Path) -> None:
    # No stack of the matrix has TRL 1.14 or 1.15: the prediction is asked of one that has.
    path = copy / "matrix.yaml"
    path.write_text(
        path.read_text().replace("torch: 2.14.0, trl: 1.16.0", "torch: 2.14.0, trl: 1.15.0")
    )
    stack = "trl-1.16.0-torch-2.14"
    assert cells(copy, stack) == {
        (stack, "alone", None): Outcome.PASS,
        (stack, "together", None): Outcome.REPRODUCED,
        (stack, "together", "divide-once"): Outcome.PASS,
        (stack, "together", "divide-once-standalone"): Outcome.PASS,
        (stack, "together", "round-it"): Outcome.REPRODUCED,
    }
    assert set(cells(copy, "newest").values()) == {Outcome.PASS}


def run(
    copy: Path, monkeypatch: pytest.MonkeyPatch, trl: str, variant: str, fix: str = ""
) -> Outcome:
    """The outcome of the example's scenario on a fake TRL of that version."""
    broken = trl in ("1.14.0", "1.15.0")

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) / (len(values) if broken else 1)

    example = SimpleNamespace(mean=mean)
    fake = ModuleType("trl")
    monkeypatch.setattr(fake, "example", example, raising=False)
    monkeypatch.setitem(sys.modules, "trl", fake)
    monkeypatch.setattr("importlib.metadata.version", lambda package: trl)
    monkeypatch.setenv("WORLD_SIZE", "2")
    catalogue = advisories.load(copy / "advisories", copy / "tests" / "reproductions")
    reproduction = load(copy / "tests" / "reproductions" / "example_mean.py")
    entries = {"divide-once": "apply", "round-it": "round_it"}
    if fix == "divide-once":
        load(copy / "src" / "trl_compat" / "fixes" / "example_mean.py").apply()
    elif fix == "divide-once-standalone":
        (pasted,) = catalogue["example-mean"].fixes
        exec(pasted.standalone, {"__name__": "__main__"})
    elif fix:
        getattr(reproduction, entries[fix])()
    rank = context.Rank(
        CellSpec(
            cell="c",
            reproduction="",
            variant=variant,
            conditions=catalogue.reproduction("example-mean").conditions_of(variant),
            model="",
            model_dir="",
            world_size=2,
            device="cpu",
            folder="",
        )
    )
    record: dict[str, Any] = {"status": "finished", "ended": 1.0, "stand_ins": []}
    try:
        reproduction.scenario(rank)
    except context.PostConditionFailed as error:
        record |= {"status": "raised", "error": signature.describe(error)}
    record |= {"checks": rank.checks, "preconditions": rank.preconditions}
    left = RankRecord.model_validate(record)
    seen = Observation(
        launch=Launch.TORCHRUN, world_size=2, started_at="", seconds=0, ranks={0: left, 1: left}
    )
    return decide(seen, catalogue["example-mean"], catalogue.masks, Outcome.PASS).outcome


@pytest.mark.parametrize(
    ("trl", "variant", "fix", "outcome"),
    [
        ("1.13.0", "together", "", Outcome.PASS),
        ("1.14.0", "together", "", Outcome.REPRODUCED),
        ("1.15.0", "together", "", Outcome.REPRODUCED),
        ("1.15.0", "alone", "", Outcome.PASS),
        ("1.15.0", "together", "divide-once", Outcome.PASS),
        ("1.15.0", "together", "divide-once-standalone", Outcome.PASS),
        ("1.15.0", "together", "round-it", Outcome.REPRODUCED),
        ("1.16.0", "together", "", Outcome.PASS),
        ("1.16.0", "together", "divide-once", Outcome.PASS),
    ],
)
def test_the_scenario_of_the_example_fails_and_passes_where_it_should(
    copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    trl: str,
    variant: str,
    fix: str,
    outcome: Outcome,
) -> None:
    assert run(copy, monkeypatch, trl, variant, fix) is outcome


def test_the_fix_of_the_example_is_offered(copy: Path) -> None:
    catalogue = advisories.load(copy / "advisories", copy / "tests" / "reproductions")
    found = remedies.remedy(catalogue["example-mean"], remedies.named({"trl": "1.15.0"}))
    assert found.fix is not None
    assert found.fix.name == "divide-once"
