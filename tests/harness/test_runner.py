"""Ranks that misbehave, in a real stack: each gets its outcome, and nothing of it stays alive."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories, matrix
from trl_compat.environments import build
from trl_compat.execution import processes
from trl_compat.execution.runner import StackRunner
from trl_compat.outcomes import Launch, Observation, Outcome, decide
from trl_compat.runtime.spec import CellSpec

pytestmark = pytest.mark.matrix
FAKES = Path(__file__).parent / "fakes"
LIMIT = 60.0
SHORT = 6.0  # for what never ends by itself


@pytest.fixture(scope="module")
def runner() -> Iterator[StackRunner]:
    table = matrix.load(ROOT / "matrix.yaml")
    environment = build.ensure("trl-1.16.0", table.stacks["trl-1.16.0"])
    processes.adopt_orphans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_planted")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
        with StackRunner(environment) as running:
            yield running


def observe(
    runner: StackRunner, fake: str, launch: Launch = Launch.PRELOADED, world_size: int = 2
) -> Observation:
    endless = fake.startswith("hangs")
    spec = CellSpec(
        cell=fake,
        reproduction=str(FAKES / f"{fake}.py"),
        variant="v",
        conditions={},
        model="tiny-qwen2",
        model_dir=str(ROOT / "tiny_models" / "tiny-qwen2"),
        world_size=world_size,
        device="cpu",
        folder=str(runner.folder(fake)),
    )
    return runner.run(
        spec, limit=SHORT if endless and launch is Launch.PRELOADED else LIMIT, launch=launch
    )


def outcome(seen: Observation) -> Outcome:
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    return decide(seen, catalogue["ppo-zero3-save"], catalogue.masks, Outcome.PASS).outcome


def living() -> set[int]:
    """Processes below this one that belong to a cell (not the parent with the imports done)."""
    below = psutil.Process(os.getpid()).children(recursive=True)
    return {p.pid for p in below if p.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.parametrize(
    ("fake", "expected"),
    [
        ("passes", Outcome.PASS),
        ("vacuous", Outcome.VACUOUS),
        ("hangs_in_a_collective", Outcome.HANG),
        ("exits_early", Outcome.CRASH),
        ("killed_by_a_signal", Outcome.CRASH),
        ("leaves_a_child", Outcome.PASS),
        ("raises_on_rank_1", Outcome.OTHER_FAILURE),
        ("two_ranks_differ", Outcome.OTHER_FAILURE),
    ],
)
def test_each_fake_gets_its_outcome_and_leaves_nothing(
    runner: StackRunner, fake: str, expected: Outcome
) -> None:
    observe(runner, "passes")  # so that the parent with the imports is there
    before = living()
    begun = time.monotonic()
    seen = observe(runner, fake)
    assert outcome(seen) is expected
    assert living() == before
    assert time.monotonic() - begun < LIMIT


def test_a_hang_shows_where_every_rank_was(runner: StackRunner) -> None:
    seen = observe(runner, "hangs_in_a_collective")
    assert seen.output.count("in scenario") >= 2


def test_a_child_that_was_left_is_counted(runner: StackRunner) -> None:
    assert observe(runner, "leaves_a_child").leftovers == 2


def test_the_signal_of_a_killed_rank_is_known(runner: StackRunner) -> None:
    assert observe(runner, "killed_by_a_signal").rank_exits[1] == -9


def test_the_first_rank_to_fail_counts(runner: StackRunner) -> None:
    seen = observe(runner, "two_ranks_differ")
    assert seen.ranks[1]["error"]["message"] == "first"


def test_plain_torchrun_observes_the_same(runner: StackRunner) -> None:
    for fake in ("passes", "vacuous", "killed_by_a_signal", "raises_on_rank_1"):
        seen = observe(runner, fake, Launch.TORCHRUN)
        assert seen.launch is Launch.TORCHRUN
        assert outcome(seen) is outcome(observe(runner, fake))


def test_eight_ranks(runner: StackRunner) -> None:
    assert outcome(observe(runner, "passes", world_size=8)) is Outcome.PASS


def test_nothing_of_the_harness_or_the_user_is_in_a_cell(runner: StackRunner) -> None:
    seen = observe(runner, "sees_its_environment").ranks[0]["observations"]
    assert seen["harness"] == []
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(seen["variables"])
    assert "planted" not in seen["values"]
    assert seen["home"] != os.path.expanduser("~")
    assert not any(str(ROOT) in place for place in seen["path"])
