"""``trl-compat bench``: the same cells with plain torchrun and with the harness, on one machine.

The plain run is a loop over the cells with one ``torchrun`` each, in existing environments (the
cost of creating them with pip is measured separately).  The other run is ``trl-compat matrix``.
Seconds depend on the machine, so the ratios are the main result.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trl_compat import advisories
from trl_compat.cells.fingerprint import differences, fingerprint
from trl_compat.cells.outcomes import Observation, Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput, HarnessError
from trl_compat.files import project
from trl_compat.machine import commands
from trl_compat.running import matrix_run
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.execution.watch import Limits
from trl_compat.running.store import Store
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import EnvironmentFailed, build, interpreters

EIGHT = 8


class Figure(BaseModel):
    """One line of the table: a value of ours, of the plain way, and their ratio if it has sense."""

    model_config = ConfigDict(frozen=True)

    what: str
    plain: str = ""
    ours: str
    ratio: float | None = None


def cells_of(where: project.Project, profile: str, count: int | None) -> list[Cell]:
    """The cells to measure, in the order of the plan: all of a profile or a sample of them.

    The sample is the same for the same plan.

    Raises:
        BadInput: an unknown profile.
    """
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    planned = plan(table, catalogue, Selection(profile=profile)).cells
    if count is None or count >= len(planned):
        return planned
    chosen = set(random.Random(0).sample(range(len(planned)), count))
    return [cell for place, cell in enumerate(planned) if place in chosen]


def measure(where: project.Project, cells: Sequence[Cell], jobs: int) -> Iterator[Figure]:
    """Measures, one figure after the other, longest last."""
    table = matrix.load(where.matrix_file)
    stack = cells[0].stack
    yield from _environment(stack, table.stacks[stack])
    yield _disk(table, sorted({cell.stack for cell in cells}))
    with tempfile.TemporaryDirectory(prefix="trl-compat-bench-") as folder:
        yield _memory(where, cells, Path(folder) / "wide")
        yield from _cells(where, list(cells), jobs, Path(folder))


def _environment(name: str, stack: matrix.Stack) -> Iterator[Figure]:
    """Making one stack: pip with a warm cache, ours from the lock, and ours when it is there."""
    environment = build.ensure(name, stack)
    with tempfile.TemporaryDirectory(prefix="trl-compat-bench-") as folder:
        wanted = Path(folder) / "requirements.txt"
        plain = {n: v for n, v in environment.lock.packages.items() if "@" not in v}
        plain.pop("deepspeed", None)  # pip would build it, and need torch before it does
        wanted.write_text("".join(f"{n}=={v}\n" for n, v in plain.items()), encoding="utf-8")
        by_pip = [_pip(environment, wanted, Path(folder) / f"pip{n}") for n in range(2)][-1]
        begun = time.monotonic()
        build.make(Path(folder) / "ours", environment.lock, stack, interpreters.find(stack.python))
        ours = time.monotonic() - begun
    begun = time.monotonic()
    build.ensure(name, stack)
    ready = time.monotonic() - begun
    yield Figure(
        what=f"environment of {name}, caches warm, built from scratch",
        plain=f"{by_pip:.1f} s",
        ours=f"{ours:.1f} s",
        ratio=by_pip / ours,
    )
    yield Figure(what=f"environment of {name}, already built", ours=f"{ready:.2f} s")


def _pip(environment: build.Environment, wanted: Path, folder: Path) -> float:
    begun = time.monotonic()
    for command in (
        [str(environment.python.resolve()), "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "-r", wanted],
    ):
        done = commands.run([str(part) for part in command], env=dict(os.environ))
        if done.returncode:
            raise BadInput(f"bench: pip failed: {done.stderr.strip().splitlines()[-1]}")
    took = time.monotonic() - begun
    shutil.rmtree(folder)
    return took


def _disk(table: matrix.Matrix, stacks: Sequence[str]) -> Figure:
    """What the environments take, each file once, against what they would without sharing."""
    once: dict[tuple[int, int], int] = {}
    total = 0
    for name in stacks:
        environment = build.ensure(name, table.stacks[name])
        for path in environment.python.parents[1].rglob("*"):
            if path.is_file() and not path.is_symlink():
                info = path.stat()
                once[info.st_dev, info.st_ino] = info.st_size
                total += info.st_size
    shared = sum(once.values())
    return Figure(
        what=f"disk, {len(stacks)} environments",
        plain=f"{total / 1e9:.1f} GB",
        ours=f"{shared / 1e9:.1f} GB",
        ratio=total / shared,
    )


def _memory(where: project.Project, cells: Sequence[Cell], folder: Path) -> Figure:
    """Peak memory of a cell of eight ranks that trains to its end, shared memory counted once."""
    passing = [cell for cell in cells if cell.expectation.outcome is Outcome.PASS]
    wide = (passing or list(cells))[0].model_copy(update={"world_size": EIGHT})
    campaign = _campaign(where, folder, [wide])
    try:
        campaign.run(wide)
        record = campaign.store.read(wide.id)
    finally:
        campaign.close()
    if record is None or campaign.verdict(wide, record).outcome is not Outcome.PASS:
        return Figure(what=f"memory of {wide.id}", ours="no figure: it did not pass")
    held = record.observations[0].peak_memory
    return Figure(what=f"memory of {wide.id}", ours=f"{held / 1e9:.1f} GB")


def _cells(where: project.Project, cells: list[Cell], jobs: int, folder: Path) -> Iterator[Figure]:
    """The cells by a loop of plain ``torchrun``, and by the matrix."""
    table = matrix.load(where.matrix_file)
    for stack in sorted({cell.stack for cell in cells}):  # the plain way has them, too
        with contextlib.suppress(EnvironmentFailed):
            build.ensure(stack, table.stacks[stack])
    ours, plain = folder / "ours", folder / "plain"
    begun = time.monotonic()
    order = _campaign(where, ours, cells).order
    if matrix_run.execute(order, cells, jobs, _Silent()):
        raise KeyboardInterrupt
    took = time.monotonic() - begun
    looped = _campaign(where, plain, cells, preload=False)
    begun = time.monotonic()
    try:
        for cell in cells:
            looped.run(cell)
    finally:
        looped.close()
    loop = time.monotonic() - begun
    pairs = _pairs(ours, plain, cells)
    yield Figure(
        what=f"median of {len(pairs)} scenarios",
        plain=f"{statistics.median(b.seconds for _, b in pairs.values()):.1f} s",
        ours=f"{statistics.median(a.seconds for a, _ in pairs.values()):.1f} s",
        ratio=statistics.median(b.seconds / a.seconds for a, b in pairs.values()),
    )
    yield Figure(
        what=f"all {len(cells)} cells, environments warm, {jobs} stacks at a time",
        plain=f"{loop:.0f} s",
        ours=f"{took:.0f} s",
        ratio=loop / took,
    )
    unlike = [
        f"{name}{line}"
        for name, (a, b) in pairs.items()
        for line in differences(fingerprint(a), fingerprint(b))
    ]
    yield Figure(what="cells with different results", ours="; ".join(unlike) or "none")


class _Silent:
    """A display that shows nothing."""


def _pairs(
    ours: Path, plain: Path, cells: Sequence[Cell]
) -> dict[str, tuple[Observation, Observation]]:
    """Of each cell that ran, what was seen of it our way and the plain way, by the cell's id."""
    pairs = {}
    for cell in cells:
        records = [Store(folder / ".state").read(cell.id) for folder in (ours, plain)]
        first, second = (record.observations[0] if record else None for record in records)
        if first is None or second is None:
            raise HarnessError(f"bench: no record of {cell.id}")
        if first.not_started is None and second.not_started is None:
            pairs[cell.id] = (first, second)
    return pairs


def _campaign(
    where: project.Project, folder: Path, cells: Sequence[Cell], *, preload: bool = True
) -> Campaign:
    apart = project.at(where.root, matrix=where.matrix_file, reports=folder)
    models = project.check_models(where, tuple(sorted({cell.model for cell in cells})))
    return Campaign(
        RunSpec(
            root=apart.root,
            matrix_file=apart.matrix_file,
            reports=apart.reports,
            state=apart.state,
            matrix=matrix.load(apart.matrix_file),
            catalogue=advisories.load(apart.advisories, apart.reproductions),
            models=models,
            cells=list(cells),
            limits=Limits(),
            preload=preload,
        )
    )
