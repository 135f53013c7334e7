"""Runs the question's cell in one stack after the other, like cells of the matrix.

Known records are reused; further runs of a stack are added to its record, so that nothing that was
seen is lost.  A matrix file with every stack so far is kept beside the log, so that each cell can
be run again by its one-line command.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from trl_compat.advisories import Catalogue
from trl_compat.bisect.question import Question
from trl_compat.bisect.search import Side
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import HarnessError
from trl_compat.files.project import Project
from trl_compat.running import display, matrix_run
from trl_compat.running.store import CellRecord, Store
from trl_compat.stacks.matrix import Matrix, Profile, Selector, Stack

PROFILE = "bisect"
MOST_RUNS = 3  # of a stack whose runs differ


@dataclass(frozen=True)
class Seen:
    """What the question's cell showed in one stack.

    Attributes:
        name: of the stack.
        verdicts: one for each run.
        side: what they say together.
        verdict: that of them which speaks for it.
        expected: what the advisories predict.
        packages: everything in the stack; empty if it could not be made.
        reused: nothing had to be run for it.
        command: runs the cell again.
        seconds: that the runs took.
    """

    name: str
    stack: Stack
    verdicts: tuple[Verdict, ...]
    side: Side
    verdict: Verdict
    expected: Expectation
    packages: Mapping[str, str] = field(default_factory=dict)
    reused: bool = False
    command: str = ""
    seconds: float = 0.0

    @property
    def unstable(self) -> bool:
        """Whether its runs differ."""
        return len({(v.outcome, v.symptom, v.masked_by) for v in self.verdicts}) > 1


class CellRuns:
    """The cells of one bisection.

    Args:
        where: the project; the folder of reports is the bisection's own.
        table: the matrix that the command began with.
        catalogue: the advisories.
        question: what is asked.
        options: how cells are run.
    """

    def __init__(
        self,
        where: Project,
        table: Matrix,
        catalogue: Catalogue,
        question: Question,
        options: matrix_run.Options,
    ) -> None:
        self.where, self.question, self.options = where, question, options
        self._table, self.catalogue = table, catalogue
        self._stacks: dict[str, Stack] = {}
        self._asked: set[str] = set()
        self._judged: set[str] = set()
        self.ran = 0

    @property
    def judged(self) -> int:
        """How many stacks are judged."""
        return len(self._judged)

    def expected(self, name: str, stack: Stack) -> Expectation | None:
        """What the advisories predict for a stack; None if nothing could be run there."""
        cell = self._cell(name, stack)
        return cell.expectation if cell else None

    def seen(self, name: str, stack: Stack, runs: int = 1) -> Seen:
        """What at least so many runs show; three if they do not agree.

        Raises:
            KeyboardInterrupt: the user interrupted a run.
            HarnessError: a cell has no record, or the harness failed twice.
        """
        if self._cell(name, stack) is None:
            why = f"fix {self.question.fix} does not exist for this stack"
            nothing = Verdict(outcome=Outcome.NOT_APPLICABLE, reason=why)
            expected = Expectation(outcome=Outcome.NOT_APPLICABLE)
            return Seen(name, stack, (nothing,), Side.UNJUDGED, nothing, expected, reused=True)
        found = self._at_least(name, stack, runs)
        if found.verdict.outcome is Outcome.HARNESS_ERROR:
            found = self._at_least(name, stack, runs)
            if found.verdict.outcome is Outcome.HARNESS_ERROR:
                raise HarnessError(f"{name}: {found.verdict.reason}")
        if not self.question.agree(found.verdicts):
            found = self._at_least(name, stack, MOST_RUNS)
        if found.side is not Side.UNJUDGED:
            self._judged.add(name)
        return found

    def _at_least(self, name: str, stack: Stack, runs: int) -> Seen:
        # Who wants everything fresh has what this command ran before.
        how: dict[str, object] = {"fresh": False} if name in self._asked else {}
        planned = self._cell(name, stack)
        if planned is not None and Store(self.where.state).read(planned.id) is None:
            # Every run at once: starting a stack takes longer than a second run of its cell.
            how["repeat"] = runs
        cell, record, ran = self._run(name, stack, how)
        self._asked.add(name)
        if record.final and len(record.attempts) < runs:
            more = {"fresh": True, "repeat": runs - len(record.attempts)}
            _, again, ran = self._run(name, stack, more)
            if again.final and again.key == record.key:
                both = (*record.attempts, *again.observations)
                record = again.model_copy(update={"observations": both})
                ran.campaign.store.write(record)
            else:
                record = again
        verdicts = tuple(ran.campaign.judge_each(cell, record))
        side = self.question.decided(verdicts)
        speaks = [v for v in verdicts if self.question.side(v) is side]
        started = {seen.started_at for seen in record.attempts}
        return Seen(
            name=name,
            stack=stack,
            verdicts=verdicts,
            side=side,
            verdict=(speaks or list(verdicts))[0],
            expected=cell.expectation,
            packages=record.surroundings.packages if record.surroundings else {},
            reused=all(at < ran.result.started_at for at in started),
            command=cell.command(ran.again),
            seconds=sum(seen.seconds for seen in record.attempts),
        )

    def _run(
        self, name: str, stack: Stack, how: Mapping[str, object]
    ) -> tuple[Cell, CellRecord, matrix_run.Ran]:
        """One run of the cell and its control."""
        table = self._with(name, stack)
        text = yaml.safe_dump(
            table.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=False
        )
        self.where.matrix_file.parent.mkdir(parents=True, exist_ok=True)
        self.where.matrix_file.write_text(f"# Written by trl-compat bisect.\n{text}", "utf-8")
        options = self.options.model_copy(update=dict(how))
        # What a user redirects is the answer; progress is said beside it.
        console = display.console_of(sys.stderr)
        ran = matrix_run.run(
            self.where, table, self.catalogue, self._selection(name), options, console
        )
        if ran.interrupted:
            raise KeyboardInterrupt
        ran.check_complete()
        for cell, record in ran.finished:
            if self._is_asked(cell):
                self.ran += ran.result.started_at <= max(o.started_at for o in record.attempts)
                return cell, record, ran
        raise HarnessError(f"{name}: the cell has no record; run the same command again")

    def _cell(self, name: str, stack: Stack) -> Cell | None:
        planned = plan(self._with(name, stack), self.catalogue, self._selection(name))
        return next((cell for cell in planned.cells if self._is_asked(cell)), None)

    def _is_asked(self, cell: Cell) -> bool:
        asked = self.question
        return cell.variant == asked.variant and (cell.fix or "none") == asked.fix

    def _selection(self, name: str) -> Selection:
        asked = self.question
        return Selection(
            profile=PROFILE,
            stacks=(name,),
            failures=(asked.failure,),
            variants=(asked.variant,),
            models=(asked.model,),
            fixes=(asked.fix,),
            world_size=asked.world_size,
            device=asked.device,
        )

    def _with(self, name: str, stack: Stack) -> Matrix:
        """A matrix of every stack so far."""
        self._stacks[name] = stack
        asked = self.question
        block = Selector(
            stacks=tuple(self._stacks),
            failures=(asked.failure,),
            variants=(asked.variant,),
            models=(asked.model,),
            world_size=asked.world_size,
        )
        profile = Profile(about="what the bisection asks", select=(block,))
        return Matrix(
            models=self._table.models, stacks=dict(self._stacks), profiles={PROFILE: profile}
        )
