"""The cell of a sabotage, and whether it failed at the very check that the sabotage breaks.

For the tests of the harness and for ``tests.mutations``; the ranks do not import this.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.check_sites import RUNTIME, Site, in_folder
from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import decide
from trl_compat.running.execution.runner import StackRunner
from trl_compat.running.execution.watch import Limits
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

from .declaration import Sabotage, declared

REPRODUCTIONS = ROOT / "tests" / "reproductions"
IN_CELL = Path(__file__).with_name("in_cell.py")
MODEL = "tiny-qwen2"
LIMITS = Limits(seconds=120, idle=30)

# Sites that nothing from outside can make fail, and why.
WITHOUT_SABOTAGE = {
    "unwrap_double_yield.yields_once: entered-once": (
        "a with block runs once or the statement raises: no context manager can make it run again"
    ),
    **dict.fromkeys(
        (
            "save_and_resume_over_nodes.assert_equal: *",
            "save_and_resume_over_nodes.assert_moved: trained",
            "save_and_resume_over_nodes.resume: same-node",
            "save_and_resume_over_nodes.resume: resumed-at-step",
        ),
        "a scenario of several nodes, which is no cell of a failure; tests of nodes run it",
    ),
}


@functools.cache
def catalogue() -> advisories.Catalogue:
    return advisories.load(ROOT / "advisories", REPRODUCTIONS)


@functools.cache
def all_sites() -> tuple[Site, ...]:
    return (*in_folder(REPRODUCTIONS), *in_folder(RUNTIME))


@functools.cache
def all_sabotages() -> dict[str, list[Sabotage]]:
    """The sabotages of every failure that has some."""
    found = {}
    for failure in catalogue().subjects:
        module = catalogue().reproduction(failure).module
        if IN_CELL.with_name(f"{module}.py").is_file():
            found[failure] = declared(importlib.import_module(f"{__package__}.{module}"))
    return found


def sites_of(failure: str, sabotage: Sabotage) -> list[Site]:
    """The sites that a sabotage can mean; one, if its declaration is right."""
    module, _, function = sabotage.within.rpartition(".")
    here = (catalogue().reproduction(failure).module, sabotage.within)
    return [
        site
        for site in all_sites()
        if site.registers(sabotage.check)
        and (site.path.stem, site.within) in (here, (module, function))
    ]


def run(
    runner: StackRunner,
    failure: str,
    sabotage: Sabotage,
    *,
    commit: bool = True,
    reproductions: Path = REPRODUCTIONS,
    replaced: Mapping[str, str] | None = None,
) -> Observation:
    """Runs the cell of a sabotage.

    Args:
        commit: False runs the cell as it is, without the sabotage.
        reproductions: the folder to take the reproduction from.
        replaced: other files for modules of the runtime, by module name.
    """
    reproduction = catalogue().reproduction(failure)
    advisory = catalogue()[failure]
    invariant = catalogue().invariants.get(failure)
    entry = next((fix.entry for fix in advisory.fixes if fix.name == sabotage.fix), None)
    variant = reproduction.conditions_of(sabotage.variant)
    conditions: dict[str, Any] = {
        **variant,
        "tolerance": invariant.tolerated(variant) if invariant else {},
        "reproduced": str(reproductions / f"{reproduction.module}.py"),
        "sabotage": sabotage.function if commit else None,
        "replaced": dict(replaced or {}),
    }
    spec = CellSpec(
        cell=f"{failure}-{sabotage.function}",
        reproduction=str(IN_CELL),
        variant=sabotage.variant,
        conditions=conditions,
        model=MODEL,
        model_dir=str(ROOT / "tiny_models" / MODEL),
        world_size=2,
        device="cpu",
        folder=str(runner.folder(failure)),
        fix=entry,
    )
    return runner.run(spec, limits=LIMITS)


def outcome(failure: str, seen: Observation) -> Outcome:
    """The outcome of a run, no other failure being considered."""
    return decide(seen, catalogue()[failure], ()).outcome


def broken_at(failure: str, seen: Observation) -> str:
    """Which check a run failed at, as ``check: name`` or ``precondition: name``.

    What it was instead, if it passed or failed in another way.
    """
    verdict = decide(seen, catalogue()[failure], ())
    error = verdict.error
    if error is None:
        return f"{verdict.outcome} {verdict.reason}".strip()
    kind, _, name = str(error["where"]).partition(":")
    if kind == "check":
        return f"check: {name}"
    if error["exception"] == "ControlFailed":
        return f"precondition: {error['message'].partition(':')[0]}"
    return f"{error['exception']} at {error['where']}: {error['message'][:300]}"


def aimed_at(site: Site, sabotage: Sabotage) -> str:
    """What :func:`broken_at` says when a sabotage does what it is for."""
    return f"{site.method}: {sabotage.check}"


class Runners:
    """A runner per stack, started when first asked for; there are few stacks.

    Args:
        mutants: folders that cells may read, beside the project's own.
    """

    def __init__(self, *mutants: Path) -> None:
        self._readable = (ROOT / "tests", ROOT / "tiny_models", *mutants)
        self._stacks = matrix.load(ROOT / "matrix.yaml").stacks
        self._running: dict[str, StackRunner] = {}

    def __getitem__(self, stack: str) -> StackRunner:
        if stack not in self._running:
            environment = build.ensure(stack, self._stacks[stack])
            self._running[stack] = StackRunner(environment, readable=self._readable)
        return self._running[stack]

    def close(self) -> None:
        """Ends their processes."""
        for runner in self._running.values():
            runner.close()


def by_stack() -> Iterator[tuple[str, Sabotage]]:
    """Every sabotage with its failure, those of a stack together."""
    pairs = [(failure, s) for failure, found in all_sabotages().items() for s in found]
    yield from sorted(pairs, key=lambda pair: pair[1].stack)
