"""Runs a gate: both stacks on the failures that concern the user, then the comparison.

The cells are run as the matrix's are, from a matrix of two stacks that is written for the purpose,
so that whatever is known already is used again.  What fails on the candidate is then run once more
with its fixes.  The comparison is made from the results alone.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trl_compat import advisories, matrix, matrix_run, results
from trl_compat.advisories import Catalogue
from trl_compat.cells import UNFIXED, Selection
from trl_compat.errors import BadInput, HarnessError
from trl_compat.gate import comparison, concerned, ignores, sides
from trl_compat.gate.comparison import Both
from trl_compat.gate.concerned import Usage
from trl_compat.gate.report import FailureReport, GateReport, SideReport, exit_code
from trl_compat.gate.sides import Side
from trl_compat.matrix import PACKAGES, Block, Matrix, Profile, Stack, choose
from trl_compat.project import Project

PROFILE = "gate"


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        reference: one side as the user named it; ``candidate`` is the other.
        failures: only these; empty for all, as with trainers and strategies.
        asked: how sides are made that are no stacks of the matrix.
        pyproject: the file with the user's ignores.
        today: the day by which ignores expire.
    """

    reference: str
    candidate: str
    failures: tuple[str, ...]
    trainers: tuple[str, ...]
    strategies: tuple[str, ...]
    models: tuple[str, ...]
    world_size: int | None
    device: str
    asked: sides.Asked
    pyproject: Path
    today: datetime.date


def run(where: Project, request: Request, options: matrix_run.Options) -> GateReport:
    """Answers a request.

    Raises:
        BadInput: something given is wrong, or a source is out of reach.
        HarnessError: cells ended without a record.
    """
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    failures = choose("failure", request.failures, catalogue.failures)
    choose("model", request.models, table.models)
    wanted = concerned.usage(catalogue, request.trainers, request.strategies)
    accepted = ignores.read(request.pyproject, catalogue.failures)

    def answer(
        reference: SideReport,
        candidate: SideReport,
        found: Sequence[FailureReport] = (),
        unresolvable: str = "",
    ) -> GateReport:
        expired = tuple(i for i in accepted if i.expired(request.today))
        in_use = {failure.failure for failure in found if failure.ignored}
        return GateReport(
            generated_at=results.now(),
            command=options.command,
            reference=reference,
            candidate=candidate,
            unresolvable=unresolvable,
            failures=tuple(found),
            expired=expired,
            unused=tuple(i for i in accepted if i not in expired and i.failure not in in_use),
            exit_code=exit_code(found, expired, unresolvable),
        )

    try:
        reference = sides.side(request.reference, table, request.asked)
    except sides.NoSuchStack as error:
        raise BadInput(
            f"--reference {request.reference}: it cannot be installed, so there is nothing to "
            f"compare with: {error}"
        ) from None
    try:
        candidate = sides.side(request.candidate, table, request.asked)
    except sides.NoSuchStack as error:
        unmade = SideReport(given=request.candidate)
        return answer(_shown(reference), unmade, unresolvable=str(error))
    if new := [yanked for yanked in candidate.yanked if yanked not in reference.yanked]:
        raise BadInput(
            f"--candidate {request.candidate}: it takes {new[0]}, which its publisher has yanked; "
            "choose another release"
        )
    if (reference.lock, reference.stack.python) == (candidate.lock, candidate.stack.python):
        return answer(
            _shown(reference),
            _shown(candidate, "the same packages as the reference: nothing had to be run"),
        )
    both = _observe(
        where, request, table, catalogue, failures, wanted, (reference, candidate), options
    )
    found = comparison.judge(catalogue, both, failures, wanted, accepted, request.today)
    return answer(_shown(reference), _shown(candidate), found)


def _shown(side: Side, *notes: str) -> SideReport:
    yanked = (f"has {one}, which its publisher has yanked" for one in side.yanked)
    return SideReport(
        given=side.given,
        stack=side.name,
        python=side.stack.python,
        versions={package: side.lock.packages.get(package, "") for package in PACKAGES},
        lock_sha256=side.lock.sha256,
        notes=(*side.notes, *yanked, *notes),
    )


def _observe(
    where: Project,
    request: Request,
    table: Matrix,
    catalogue: Catalogue,
    failures: Sequence[str],
    wanted: Usage,
    pair: tuple[Side, Side],
    options: matrix_run.Options,
) -> Both:
    """Runs what concerns the user on both stacks, then the fixes of what fails on the candidate."""
    stacks = {side.name: side.stack for side in pair}
    blocks = tuple(concerned.blocks(catalogue, failures, wanted, request.models, stacks))
    if not blocks:
        raise BadInput("nothing to run: no known failure concerns what was named")
    folder = where.state / "gate" / "--".join(stacks)
    project = Project(where.root, folder / "matrix.yaml", folder, where.state)
    folder.mkdir(parents=True, exist_ok=True)
    project.matrix_file.write_text(_matrix_of(table, stacks, blocks), encoding="utf-8")
    (folder / "results.json").unlink(missing_ok=True)  # what was observed is in the store

    def cells(selection: Mapping[str, object]) -> Both:
        common = {"profile": PROFILE, "world_size": request.world_size, "device": request.device}
        # What the user redirects is the answer; progress is said beside it.
        with contextlib.redirect_stdout(sys.stderr):
            matrix_run.run(project, Selection.model_validate({**common, **selection}), options)
        document = results.read(folder / "results.json")
        if document is None:
            raise HarnessError("the cells were run, but there are no results of them")
        near = folder.relative_to(where.root) if folder.is_relative_to(where.root) else folder
        return Both(pair[0].name, pair[1].name, stacks, document.cells, str(near))

    both = cells({"fixes": (UNFIXED,)})
    for selection in list(comparison.fixes_to_try(catalogue, both)):
        both = cells(selection)
    return both


def _matrix_of(table: Matrix, stacks: Mapping[str, Stack], blocks: tuple[Block, ...]) -> str:
    """The matrix of the two stacks, as the text of its file."""
    excludes = tuple(e for e in table.excludes if e.stack is None or e.stack in stacks)
    profile = Profile(about="what the gate compares", select=blocks)
    own = Matrix(
        models=table.models, stacks=dict(stacks), profiles={PROFILE: profile}, excludes=excludes
    )
    data = own.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return "# Written by trl-compat gate.\n" + yaml.safe_dump(data, sort_keys=False)
