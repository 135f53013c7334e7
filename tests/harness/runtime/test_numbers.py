"""Numbers on CPU ranks can be trusted: one loss for one seed, and weights that equal their file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.conftest import HARNESS, ROOT
from trl_compat.cells.observation import Observation
from trl_compat.running.execution.runner import StackRunner
from trl_compat.running.execution.watch import Limits
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

pytestmark = pytest.mark.matrix
PROBES = HARNESS / "probes"
# An old DeepSpeed, with the stand-in for its unwaited gathers, and the newest, mended upstream.
STACKS = ("trl-0.12.2", "trl-1.16.0")
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "zero2": {"strategy": "deepspeed", "zero_stage": 2},
    "zero3": {"strategy": "deepspeed", "zero_stage": 3},
}


@pytest.fixture(scope="module", params=STACKS)
def runner(request: pytest.FixtureRequest) -> Iterator[StackRunner]:
    stacks = matrix.load(ROOT / "matrix.yaml").stacks
    environment = build.ensure(request.param, stacks[request.param])
    with StackRunner(environment, readable=[PROBES, ROOT / "tiny_models"]) as running:
        yield running


def observe(runner: StackRunner, probe: str, model: str, conditions: dict[str, Any]) -> Observation:
    spec = CellSpec(
        cell=probe,
        reproduction=str(PROBES / f"{probe}.py"),
        variant="v",
        conditions=conditions,
        model=model,
        model_dir=str(ROOT / "tiny_models" / model),
        world_size=2,
        device="cpu",
        folder=str(runner.folder(probe)),
    )
    seen = runner.run(spec, limits=Limits(seconds=180))
    assert seen.exit_status == 0, seen.output
    return seen


@pytest.mark.parametrize("model", ["tiny-mistral", "tiny-qwen2"])
def test_the_same_seed_gives_the_same_loss_under_every_strategy(
    runner: StackRunner, model: str
) -> None:
    found = {
        name: observe(runner, "losses", model, conditions).ranks[0].observations["losses"]
        for name, conditions in STRATEGIES.items()
    }
    assert found["zero2"] == pytest.approx(found["ddp"], abs=2e-3)
    assert found["zero3"] == pytest.approx(found["ddp"], abs=2e-3)
    assert found["ddp"][2] < found["ddp"][0], "it does not learn"


def test_forty_loads_under_zero3_equal_the_file(runner: StackRunner) -> None:
    seen = observe(runner, "loads", "tiny-qwen2", STRATEGIES["zero3"])
    mended = "wait-for-every-all-gather-1" not in seen.ranks[0].stand_ins
    assert seen.ranks[0].observations["wrong"] == []
    assert mended == ("trl-1.16.0" in str(runner.environment.python))
