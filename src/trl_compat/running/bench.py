"""``trl-compat bench``: the same cells with plain torchrun and with the harness, on one machine.

The plain run is a loop over the cells with one ``torchrun`` each, in existing environments (the
cost of creating them with pip is measured separately).  The other run is ``trl-compat matrix``.
Seconds depend on the machine, so the ratios are the main result.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trl_compat import advisories
from trl_compat.cells.fingerprint import differences, fingerprint
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.errors import BadInput, HarnessError
from trl_compat.files import project
from trl_compat.files.project import Project
from trl_compat.machine import commands
from trl_compat.running import drawn_stacks, matrix_run
from trl_compat.running.campaign import Campaign, RunSpec, agrees
from trl_compat.running.execution.runner import StackRunner
from trl_compat.running.execution.watch import Limits
from trl_compat.running.store import Store
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import EnvironmentFailed, build, interpreters

EIGHT = 8
DRAWN = "drawn"


class Figure(BaseModel):
    """One line of the table: a value of ours, of the plain way, and their ratio if it has sense."""

    model_config = ConfigDict(frozen=True)

    what: str
    plain: str = ""
    ours: str
    ratio: float | None = None


def cells_of(table: matrix.Matrix, where: Project, profile: str, count: int | None) -> list[Cell]:
    """The cells to measure, in the order of the plan: all of a profile or a sample of them.

    The sample is the same for the same plan.

    Raises:
        BadInput: an unknown profile.
    """
    catalogue = advisories.load(where.advisories, where.reproductions)
    planned = plan(table, catalogue, Selection(profile=profile)).cells
    if count is None or count >= len(planned):
        return planned
    chosen = set(random.Random(0).sample(range(len(planned)), count))
    return [cell for place, cell in enumerate(planned) if place in chosen]


def drawn(table: matrix.Matrix, stacks: int, seed: int) -> matrix.Matrix:
    """A matrix of stacks that were drawn at random, with one profile of the usual cells.

    Raises:
        BadInput: so many cannot be drawn.
    """
    found = drawn_stacks.draw(stacks, seed, drawn_stacks.held_torches())
    usual = matrix.Selector(models=table.models[-1:])
    profile = matrix.Profile(about="stacks that were drawn at random", select=(usual,))
    profiles = {DRAWN: profile}
    return matrix.Matrix(models=table.models, stacks=found, profiles=profiles)


def sampled(cells: Sequence[Cell], count: int | None) -> list[Cell]:
    """So many of the cells at equal distances, so that every stack has its share of them."""
    if count is None or count >= len(cells):
        return list(cells)
    return [cells[place * len(cells) // count] for place in range(count)]


def measure(
    where: Project,
    table: matrix.Matrix,
    cells: Sequence[Cell],
    jobs: int,
    by_torchrun: int | None = None,
) -> Iterator[Figure]:
    """Measures, one figure after the other, longest last.

    Args:
        by_torchrun: how many cells plain ``torchrun`` runs; None: all of them.
    """
    made, refused = _made(table, list(dict.fromkeys(cell.stack for cell in cells)))
    if refused:
        yield Figure(what="stacks that cannot be installed", ours=", ".join(refused))
    cells = [cell for cell in cells if cell.stack in made]
    if not cells:
        return
    stack = cells[0].stack
    yield from _environment(stack, table.stacks[stack])
    yield _disk(made.values())
    yield from _starts(where, made)
    with tempfile.TemporaryDirectory(prefix="trl-compat-bench-") as folder:
        yield _memory(where, table, cells, Path(folder) / "wide")
        yield from _cells(where, table, cells, jobs, by_torchrun, Path(folder))


def _made(
    table: matrix.Matrix, stacks: Sequence[str]
) -> tuple[dict[str, build.Environment], list[str]]:
    """The environments of stacks, and which of them cannot be made."""
    made, refused = {}, []
    for stack in stacks:
        try:
            made[stack] = build.ensure(stack, table.stacks[stack])
        except EnvironmentFailed:
            refused.append(stack)
    return made, refused


def _starts(where: Project, environments: Mapping[str, build.Environment]) -> Iterator[Figure]:
    """From the environment that is there to the first cell, twice for each stack."""
    reasons: dict[str, str] = {}
    for time_ in ("as this machine has it", "again"):
        took = []
        for stack, environment in environments.items():
            begun = time.monotonic()
            with StackRunner(environment, readable=(where.reproductions, where.models)) as runner:
                reasons[stack] = runner.start()
                took.append(time.monotonic() - begun)
        yield Figure(
            what=f"start of a stack, {time_}: median of {len(took)} (longest)",
            ours=f"{statistics.median(took):.1f} s ({max(took):.1f} s)",
        )
    unlike = [f"{stack}: {reason}" for stack, reason in reasons.items() if reason]
    share = f"{len(reasons) - len(unlike)} of {len(reasons)}"
    yield Figure(what="stacks that are preloaded", ours="; ".join([share, *unlike]))


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


def _disk(environments: Collection[build.Environment]) -> Figure:
    """What the environments take, each file once, against what they would without sharing."""
    once: dict[tuple[int, int], int] = {}
    total = 0
    for environment in environments:
        for path in environment.folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                info = path.stat()
                once[info.st_dev, info.st_ino] = info.st_size
                total += info.st_size
    shared = sum(once.values())
    return Figure(
        what=f"disk, {len(environments)} environments",
        plain=f"{total / 1e9:.1f} GB",
        ours=f"{shared / 1e9:.1f} GB",
        ratio=total / shared,
    )


def _memory(where: Project, table: matrix.Matrix, cells: Sequence[Cell], folder: Path) -> Figure:
    """Peak memory of a cell of eight ranks that trains to its end, shared memory counted once."""
    passing = [cell for cell in cells if cell.expectation.outcome is Outcome.PASS]
    wide = (passing or list(cells))[0].model_copy(update={"world_size": EIGHT})
    campaign = _campaign(where, table, folder, [wide])
    try:
        campaign.run(wide)
        record = campaign.store.read(wide.id)
    finally:
        campaign.close()
    verdict = campaign.verdict(wide, record) if record else None
    if record is None or verdict is None or verdict.outcome is not Outcome.PASS:
        said = f"{verdict.outcome}: {verdict.reason}" if verdict else "no record"
        return Figure(what=f"memory of {wide.id}", ours=f"no figure ({said})")
    held = record.observations[0].peak_memory
    return Figure(what=f"memory of {wide.id}", ours=f"{held / 1e9:.1f} GB")


def _cells(
    where: Project,
    table: matrix.Matrix,
    cells: list[Cell],
    jobs: int,
    by_torchrun: int | None,
    folder: Path,
) -> Iterator[Figure]:
    """The cells by the matrix, and all or a sample of them by a loop of plain ``torchrun``."""
    ours, plain = folder / "ours", folder / "plain"
    begun = time.monotonic()
    campaign = _campaign(where, table, ours, cells)
    if matrix_run.execute(campaign.order, cells, jobs, _Silent()):
        raise KeyboardInterrupt
    took = time.monotonic() - begun
    yield _deviating(campaign, cells)
    sample = sampled(cells, by_torchrun)
    looped = _campaign(where, table, plain, sample, preload=False)
    begun = time.monotonic()
    try:
        for cell in sample:
            looped.run(cell)
    finally:
        looped.close()
    loop = (time.monotonic() - begun) * len(cells) / len(sample)
    pairs = _pairs(ours, plain, sample)
    yield Figure(
        what=f"median of {len(pairs)} scenarios",
        plain=f"{statistics.median(b.seconds for _, b in pairs.values()):.1f} s",
        ours=f"{statistics.median(a.seconds for a, _ in pairs.values()):.1f} s",
        ratio=statistics.median(b.seconds / a.seconds for a, b in pairs.values()),
    )
    scaled = "" if len(sample) == len(cells) else f" (scaled up from {len(sample)} cells)"
    yield Figure(
        what=f"all {len(cells)} cells, environments warm, {jobs} stacks at a time",
        plain=f"{loop:.0f} s{scaled}",
        ours=f"{took:.0f} s",
        ratio=loop / took,
    )
    unlike = [
        f"{name}{line}"
        for name, (a, b) in pairs.items()
        for line in differences(fingerprint(a), fingerprint(b))
    ]
    yield Figure(what="cells with different results", ours="; ".join(unlike) or "none")


def _deviating(campaign: Campaign, cells: Sequence[Cell]) -> Figure:
    """The cells whose outcome is not the one that the advisories predict."""
    unlike = []
    for cell in cells:
        record = campaign.store.read(cell.id)
        verdict = campaign.verdict(cell, record) if record else None
        if verdict is None or not agrees(cell.expectation, verdict):
            said = f"{verdict.outcome}: {verdict.reason}" if verdict else "no record"
            unlike.append(f"{cell.id} ({said.rstrip(': ')})")
    return Figure(
        what=f"cells that deviate from their advisory, of {len(cells)}",
        ours="; ".join(unlike) or "none",
    )


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
    where: Project,
    table: matrix.Matrix,
    folder: Path,
    cells: Sequence[Cell],
    *,
    preload: bool = True,
) -> Campaign:
    apart = project.at(where.root, matrix=where.matrix_file, reports=folder)
    models = project.check_models(where, tuple(sorted({cell.model for cell in cells})))
    return Campaign(
        RunSpec(
            root=apart.root,
            matrix_file=apart.matrix_file,
            reports=apart.reports,
            state=apart.state,
            matrix=table,
            catalogue=advisories.load(apart.advisories, apart.reproductions),
            models=models,
            cells=list(cells),
            limits=Limits(),
            preload=preload,
        )
    )
