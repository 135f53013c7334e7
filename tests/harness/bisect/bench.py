"""A bisection whose cells are judged by hand: nothing is built or executed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from trl_compat.bisect import ahead, cell_runs, run
from trl_compat.bisect.answer import Answer
from trl_compat.bisect.cell_runs import Seen
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.files import project
from trl_compat.running import matrix_run
from trl_compat.stacks.environments import build
from trl_compat.stacks.matrix import Stack

Judge = Callable[[Stack, int], Verdict]

BASE = "torch: 2.4.1, transformers: 4.46.3, deepspeed: 0.15.2, accelerate: 0.34.2, peft: 0.13.2"
STACKS = f"""
  trl-0.12.2: {{as_of: 2024-12-12, trl: 0.12.2, {BASE}}}
  trl-0.13.0: {{as_of: 2025-01-10, trl: 0.13.0, {BASE}}}
profiles:"""


def verdict(outcome: Outcome, reason: str = "") -> Verdict:
    if outcome is Outcome.REPRODUCED:
        error = {
            "exception": "AttributeError",
            "message": "no attribute 'gather'",
            "where": "accelerate/accelerator.py:get_state_dict",
        }
        return Verdict(outcome=outcome, symptom="text", error=error)
    return Verdict(outcome=outcome, reason=reason)


@dataclasses.dataclass
class Bench:
    """A project whose cells show what ``judge`` says of a stack and of the number of the run."""

    where: project.Project
    judge: Judge
    ran: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    built: list[str] = dataclasses.field(default_factory=list)
    said: list[str] = dataclasses.field(default_factory=list)

    def bisect(self, package: str, good: str, bad: str, **more: object) -> Answer:
        request = run.Request(failure="saving", package=package, good=good, bad=bad)
        request = dataclasses.replace(request, **more)  # type: ignore[arg-type]
        options = matrix_run.Options(jobs=1, command="trl-compat bisect")
        return run.run(self.where, request, options, self.said.append)


@pytest.fixture
def bisection(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    path = project_folder / "matrix.yaml"
    path.write_text(path.read_text().replace("profiles:", STACKS.strip("\n"), 1))
    found = Bench(project.at(project_folder), lambda *_: verdict(Outcome.PASS))

    def at_least(self: cell_runs.CellRuns, name: str, stack: Stack, runs: int) -> Seen:
        found.ran.append((name, runs))
        verdicts = tuple(found.judge(stack, number) for number in range(runs))
        side = self.question.decided(verdicts)
        speaks = [v for v in verdicts if self.question.side(v) is side]
        expected = self.expected(name, stack) or Expectation(outcome=None)
        packages = {p: getattr(stack, p) for p in ("trl", "transformers")}
        packages["datasets"] = stack.as_of.isoformat()
        first = (speaks or list(verdicts))[0]
        return Seen(name, stack, verdicts, side, first, expected, packages, command=f"run {name}")

    monkeypatch.setattr(cell_runs.CellRuns, "_at_least", at_least)
    monkeypatch.setattr(build, "ensure", lambda name, _: found.built.append(name))
    monkeypatch.setattr(ahead, "held_builds", lambda: frozenset({"2.4.1", "2.13.0"}))
    return found


def by_version(package: str, *failing: str, **others: Verdict) -> Judge:
    """Fails with these releases of a package, passes with the rest, but for some."""

    def judge(stack: Stack, _: int) -> Verdict:
        version = getattr(stack, package)
        if version in others:
            return others[version]
        return verdict(Outcome.REPRODUCED if version in failing else Outcome.PASS)

    return judge
