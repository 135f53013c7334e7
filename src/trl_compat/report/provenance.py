"""When, where and how cells were run, in words: merged results contain several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trl_compat.machine.description import Host
from trl_compat.machine.parts import missing
from trl_compat.results import CellResult, Results, RunResult

UNKNOWN = "on an unknown machine"


@dataclass(frozen=True)
class Batch:
    """The cells of one run.

    Attributes:
        number: what the report calls the run, from 1.
        run: None for cells of which it is not known where they were run.
        when: the day of its cells, or the first and the last.
        stacks: how many cells of each stack, in the order of the matrix.
    """

    number: int
    run: RunResult | None
    when: str
    stacks: tuple[tuple[str, int], ...]

    @property
    def cells(self) -> int:
        """How many cells are of it."""
        return sum(count for _, count in self.stacks)

    @property
    def where(self) -> str:
        """The machine."""
        return machine(self.run.host) if self.run else "not known"

    @property
    def not_contained(self) -> str:
        """What that machine did not contain of cells, in words; empty where it was everything."""
        return "; ".join(missing(self.run.host.isolation)) if self.run else ""


def batches(document: Results) -> list[Batch]:
    """The cells by run, oldest run first, those of an unknown run last."""
    by_run: dict[str | None, list[CellResult]] = {}
    for cell in document.cells:
        of = document.run_of(cell)
        by_run.setdefault(of.id if of else None, []).append(cell)
    found: list[Batch] = []
    for run in (*document.all_runs, None):
        cells = by_run.get(run.id if run else None)
        if cells:
            counts = Counter(cell.stack for cell in cells)
            stacks = tuple((name, counts[name]) for name in document.stacks if counts[name])
            found.append(Batch(len(found) + 1, run, span(cells), stacks))
    return found


def machine(host: Host) -> str:
    """``Linux x86_64, Xeon, 2 cores, 24 GiB, no GPU``."""
    parts = [host.os, host.cpu, host.memory, ", ".join(host.gpus) or "no GPU"]
    return ", ".join(part for part in parts if part)


def span(cells: Iterable[CellResult]) -> str:
    """The day on which cells were run, or the first and the last."""
    days = sorted({cell.started_at[:10] for cell in cells})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def evidence(document: Results, cells: Sequence[CellResult]) -> list[str]:
    """How cells were proven, a line for each machine: ``cpu-gloo × 2 on …, 2026-11-21``."""
    by_machine: dict[str, list[CellResult]] = {}
    for cell in cells:
        if cell.evidence != "none":
            run = document.run_of(cell)
            on = f"on {machine(run.host)}" if run else UNKNOWN
            by_machine.setdefault(on, []).append(cell)
    return [
        f"{', '.join(sorted({cell.evidence for cell in mine}))} {on}, {span(mine)}"
        for on, mine in by_machine.items()
    ]


def on_gpus(document: Results) -> str:
    """How much was run on GPUs, in a sentence; empty if nothing was run at all."""
    ran = [cell for cell in document.cells if cell.evidence != "none"]
    count = sum(cell.evidence.startswith("cuda-") for cell in ran)
    if not ran:
        return ""
    if not count:
        return "Evidence from GPUs is missing: every cell ran on CPU ranks."
    return f"{count} of the {len(ran)} cells that ran did so on GPUs."


def summary(document: Results) -> str:
    """When and where all cells were run, in a few words."""
    if not document.cells:
        return "nothing was run"
    machines = {batch.where for batch in batches(document)}
    where = f"on {machines.pop()}" if len(machines) == 1 else f"on {len(machines)} machines"
    return f"run {span(document.cells)} {where}"
