"""Runs a gate: both stacks on the failures that concern the user, then the comparison.

The cells run like those of the matrix, from a generated matrix of two stacks, so that known results
are reused.  Failures of the candidate are then run again with their fixes.  The comparison uses
only the results.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trl_compat import advisories, results
from trl_compat.cells.plan import UNFIXED, Selection
from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.files.project import Project
from trl_compat.gate import comparison, sides
from trl_compat.gate.comparison import GateRun
from trl_compat.gate.report import FailureReport, GateReport, SideReport, exit_code
from trl_compat.gate.sides import GateSide
from trl_compat.packages import PACKAGES
from trl_compat.results import Results
from trl_compat.running import display, matrix_run
from trl_compat.stacks import matrix
from trl_compat.stacks.matrix import Matrix, Profile, Selector, Stack
from trl_compat.usage import ignores, relevance

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
    asked: sides.SideOptions
    pyproject: Path
    today: datetime.date


def run(where: Project, request: Request, options: matrix_run.Options) -> GateReport:
    """Answers a request.

    Raises:
        BadInput: something given is wrong, or a source is out of reach.
        HarnessError: cells ended without a record.
    """
    return Gate(where, request, options).answer()


class Gate:
    """One request, with what the project's files and the user's own say about it."""

    def __init__(self, where: Project, request: Request, options: matrix_run.Options) -> None:
        self.where, self.request, self.options = where, request, options
        self.table = matrix.load(where.matrix_file)
        self.catalogue = advisories.load(where.advisories, where.reproductions)
        self.failures = require_known("failure", request.failures, self.catalogue.subjects)
        require_known("model", request.models, self.table.models)
        self.wanted = relevance.usage(self.catalogue, request.trainers, request.strategies)
        self.accepted = ignores.read(request.pyproject, self.catalogue.records)

    def answer(self) -> GateReport:
        """The report; cells are run only if two different stacks can be made."""
        asked = self.request.asked
        try:
            reference = sides.side(self.request.reference, self.table, asked)
        except sides.NoSuchStack as error:
            raise BadInput(
                f"--from {self.request.reference}: it cannot be installed, so no "
                f"comparison is possible: {error}"
            ) from None
        try:
            candidate = sides.side(self.request.candidate, self.table, asked)
        except sides.NoSuchStack as error:
            unmade = SideReport(given=self.request.candidate)
            return self._report(_shown(reference), unmade, unresolvable=str(error))
        if new := [yanked for yanked in candidate.yanked if yanked not in reference.yanked]:
            raise BadInput(
                f"--to {self.request.candidate}: it uses {new[0]}, which was yanked; "
                "choose another release"
            )
        if (reference.lock, reference.stack.python) == (candidate.lock, candidate.stack.python):
            same = "the same packages as the reference: nothing was run"
            return self._report(_shown(reference), _shown(candidate, same))
        found = comparison.judge(
            self.catalogue,
            self._observe(reference, candidate),
            self.failures,
            self.wanted,
            self.accepted,
            self.request.today,
        )
        return self._report(_shown(reference), _shown(candidate), found)

    def _report(
        self,
        reference: SideReport,
        candidate: SideReport,
        found: Sequence[FailureReport] = (),
        unresolvable: str = "",
    ) -> GateReport:
        expired = tuple(i for i in self.accepted if i.expired(self.request.today))
        in_use = {failure.failure for failure in found if failure.ignored}
        unused = (i for i in self.accepted if i not in expired and i.failure not in in_use)
        return GateReport(
            generated_at=results.now(),
            command=self.options.command,
            reference=reference,
            candidate=candidate,
            unresolvable=unresolvable,
            failures=tuple(found),
            expired=expired,
            unused=tuple(unused),
            exit_code=exit_code(found, expired, unresolvable),
        )

    def _observe(self, reference: GateSide, candidate: GateSide) -> GateRun:
        """Runs what concerns the user on both, then the fixes of what fails on the candidate."""
        stacks = {side.name: side.stack for side in (reference, candidate)}
        models = self.request.models
        blocks = relevance.blocks(self.catalogue, self.failures, self.wanted, models, stacks)
        table = _matrix_of(self.table, stacks, tuple(blocks))
        folder = self.where.state / "gate" / "--".join(stacks)
        folder.mkdir(parents=True, exist_ok=True)
        own = Project(self.where.root, folder / "matrix.yaml", folder, self.where.state)
        # For who runs one of its cells again, as the line beside that cell says; not read here.
        own.matrix_file.write_text(_text_of(table), encoding="utf-8")
        document = self._run(own, table, None, {"fixes": (UNFIXED,)})
        relative = os.path.relpath(folder)
        both = GateRun(reference.name, candidate.name, stacks, document.cells, relative)
        for selection in comparison.fixes_to_try(self.catalogue, both):
            document = self._run(own, table, document, selection)
        results.write(own.reports / "results.json", document)
        return dataclasses.replace(both, cells=document.cells)

    def _run(
        self, own: Project, table: Matrix, before: Results | None, chosen: Mapping[str, object]
    ) -> Results:
        """Runs a selection; its results, over those of the selections before it.

        Raises:
            KeyboardInterrupt: the user interrupted the run; nothing is said on half of the cells.
            HarnessError: cells have no record.
        """
        common = {"world_size": self.request.world_size, "device": self.request.device}
        selection = Selection.model_validate({"profile": PROFILE, **common, **chosen})
        # What a user redirects is the answer; progress is said beside it.
        console = display.console_of(sys.stderr)
        ran = matrix_run.run(own, table, self.catalogue, selection, self.options, console)
        document = ran.with_logs(ran.over(before))
        if ran.interrupted:
            ran.show_end(document)  # which says how to go on
            raise KeyboardInterrupt
        ran.check_complete()
        return document


def _shown(side: GateSide, *notes: str) -> SideReport:
    yanked = (f"uses {one}, which was yanked" for one in side.yanked)
    return SideReport(
        given=side.given,
        stack=side.name,
        python=side.stack.python,
        versions={package: side.lock.packages.get(package, "") for package in PACKAGES},
        lock_sha256=side.lock.sha256,
        notes=(*side.notes, *yanked, *notes),
    )


def _matrix_of(table: Matrix, stacks: Mapping[str, Stack], blocks: tuple[Selector, ...]) -> Matrix:
    """The matrix of the two stacks.

    Raises:
        BadInput: there is nothing to run.
    """
    if not blocks:
        raise BadInput("nothing to run: no known failure matches the given options")
    excludes = tuple(
        exclude.model_copy(update={"stack": name, "grid": None})
        for exclude in table.excludes
        for name, stack in stacks.items()
        if exclude.stack in (None, name) and exclude.concerns(stack)
    )
    # A grid has made such a stack once; here the user names it.
    named = {n: s.model_copy(update={"grid": "", "also_in": ()}) for n, s in stacks.items()}
    profile = Profile(about="what the gate compares", select=blocks)
    return Matrix(models=table.models, stacks=named, profiles={PROFILE: profile}, excludes=excludes)


def _text_of(table: Matrix) -> str:
    data = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return "# Written by trl-compat gate.\n" + yaml.safe_dump(data, sort_keys=False)
