"""Ranks of fakes, observed."""

from __future__ import annotations

import os
from typing import Any

import psutil

from tests.harness.conftest import HARNESS, ROOT
from trl_compat import advisories
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict, decide
from trl_compat.machine import processes
from trl_compat.running.execution.runner import StackRunner
from trl_compat.running.execution.watch import Limits
from trl_compat.runtime.spec import CellSpec

FAKES = HARNESS / "fakes"


READABLE = (FAKES, ROOT / "tiny_models")


AMPLE = Limits(seconds=60, idle=30)


LIMITS = {
    "hangs_in_a_collective": Limits(seconds=60, idle=8),
    "hangs_in_c_holding_the_gil": Limits(seconds=60, idle=8),
    "ranks_call_different_collectives": Limits(seconds=60, idle=4),
    "hangs_in_teardown": Limits(seconds=60, idle=4),
    "leaves_links_and_pipes": Limits(seconds=60, idle=4),
    "swallows_a_failed_check_and_hangs": Limits(seconds=60, idle=4),
    "hangs_at_work": Limits(seconds=6, idle=4),
    "allocates_until_killed": Limits(seconds=60, memory=3 * 10**9),
}


def observe(
    runner: StackRunner,
    fake: str,
    launch: Launch = Launch.PRELOADED,
    world_size: int = 2,
    conditions: dict[str, Any] | None = None,
) -> Observation:
    spec = CellSpec(
        cell=fake,
        reproduction=str(FAKES / f"{fake}.py"),
        variant="v",
        conditions=conditions or {},
        model="tiny-qwen2",
        model_dir=str(ROOT / "tiny_models" / "tiny-qwen2"),
        world_size=world_size,
        device="cpu",
        folder=str(runner.folder(fake)),
    )
    return runner.run(spec, limits=LIMITS.get(fake, AMPLE), launch=launch)


def judge(seen: Observation) -> Verdict:
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    return decide(seen, catalogue["ppo-zero3-save"], catalogue.masks, Outcome.PASS)


def outcome(seen: Observation) -> Outcome:
    return judge(seen).outcome


def living(runner: StackRunner) -> set[int]:
    """Every process that is below this one, or carries the mark of the runner wherever it is."""
    below = psutil.Process(os.getpid()).children(recursive=True)
    found = [*below, *processes.marked(runner.run_id)]
    return {p.pid for p in found if p.status() != psutil.STATUS_ZOMBIE}
