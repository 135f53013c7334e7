"""``verify`` on real trainers and engines: right where they are right, wrong where they are not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import HARNESS, ROOT
from tests.harness.verifying.faults import FAULTS
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

pytestmark = pytest.mark.matrix

RIGHT = "newest"
# DeepSpeed 0.18.2: at ZeRO-2 only the last micro-batch of a window counts.
LAST_ONLY = "grid-trl-0.25.1-transformers-4.57.1-deepspeed-0.18.2"
CASES = (
    *("SFT:none:1:train=1", "DPO:none:1:train=1", "GRPO:none:1:train=1", "GRPO:none:1:loss=grpo"),
    *("Reward:none:1", "KTO:none:1", "DPO:none:1:peft=1:train=1"),
    *("SFT:ddp:2:train=1", "SFT:2:2:train=1", "SFT:3:2:train=1", "SFT:2:2:offload=1"),
    *("DPO:3:2", "GRPO:2:2", "SFT:3:2:how=callback"),
)


def run(stack: str, results: Path, *cases: str) -> dict[str, Any]:
    environment = build.ensure(stack, matrix.load(ROOT / "matrix.yaml").stacks[stack])
    script = HARNESS / "verifying" / "scenario.py"
    done = subprocess.run(
        [str(environment.python), str(script), str(results), *cases],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=results.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


def violated(answer: dict[str, Any]) -> list[str]:
    assert "error" not in answer, answer["error"]
    checks = answer["verdict"]["checks"]
    return [check["name"] for check in checks if check["outcome"] == "violated"]


def check(answer: dict[str, Any], name: str) -> dict[str, Any]:
    checks: list[dict[str, Any]] = answer["verdict"]["checks"]
    return next(one for one in checks if one["name"] == name)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    never = [case.replace("train=1", "how=never") for case in CASES if "train=1" in case]
    return run(RIGHT, tmp_path_factory.mktemp("right") / "answers.json", *CASES, *never)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_violated_where_it_trains_right(answers: dict[str, Any], case: str) -> None:
    assert violated(answers[case]) == [], answers[case]["text"]
    for name in ("accumulation", "step", "saved", "restored"):
        assert check(answers[case], name)["outcome"] == "ok", answers[case]["text"]


@pytest.mark.parametrize("case", [case for case in CASES if "train=1" in case])
def test_training_afterwards_gives_the_losses_that_it_gives_without(
    answers: dict[str, Any], case: str
) -> None:
    without = answers[case.replace("train=1", "how=never")]
    assert answers[case]["losses"] == pytest.approx(without["losses"], rel=1e-5)
    assert answers[case]["files"] == without["files"]


def test_an_engine_that_keeps_the_last_micro_batch_only_is_told(tmp_path: Path) -> None:
    answers = run(LAST_ONLY, tmp_path / "answers.json", "SFT:2:2", "SFT:3:2")
    found = check(answers["SFT:2:2"], "accumulation")
    assert found["outcome"] == "violated"
    assert 0.1 < found["numbers"]["projection"] < 0.4
    assert violated(answers["SFT:3:2"]) == [], answers["SFT:3:2"]["text"]


def test_at_least_nine_of_ten_deliberate_faults_are_caught(tmp_path: Path) -> None:
    answers = run(RIGHT, tmp_path / "answers.json", "faults")
    missed = [
        name
        for name, (case, wanted, _) in FAULTS.items()
        if wanted not in violated(answers[f"{case}:fault={name}"])
    ]
    assert len(FAULTS) >= 20
    assert len(missed) <= len(FAULTS) / 10, missed
