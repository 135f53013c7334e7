"""What every search of one command shares: its question, its log, its folder and its runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.bisect.around import Rules
from trl_compat.bisect.cell_runs import CellRuns
from trl_compat.bisect.question import Question
from trl_compat.bisect.step_log import StepLog
from trl_compat.files.project import Project
from trl_compat.running import matrix_run
from trl_compat.stacks.matrix import Matrix

Say = Callable[[str], object]


@dataclass(frozen=True)
class Bisection:
    """What every search of one command shares.

    Attributes:
        runs: runs the question's cell.
        log: of the steps.
        rules: about releases.
        say: tells the user what happens.
    """

    where: Project
    table: Matrix
    catalogue: Catalogue
    question: Question
    runs: CellRuns
    log: StepLog
    rules: Rules
    say: Say

    @contextlib.contextmanager
    def resumable(self) -> Iterator[None]:
        """Says how to go on if the user interrupts what is done in this block."""
        try:
            yield
        except KeyboardInterrupt:
            self.log.add("interrupted")
            self.say(
                f"judged so far, and kept: {self.runs.judged} stacks; to go on, run the same "
                "command again"
            )
            raise


def open_bisection(
    where: Project,
    table: Matrix,
    catalogue: Catalogue,
    question: Question,
    rules: Rules,
    asked: Sequence[object],
    options: matrix_run.Options,
    say: Say,
) -> Bisection:
    """A bisection; its folder is named after what is asked, so that the same command finds it."""
    told = json.dumps([repr(question), *map(str, asked)])
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    folder = where.state / "bisect" / f"{question.failure}-{digest}"
    own = Project(where.root, folder / "matrix.yaml", folder, where.state)
    log = StepLog(folder / "steps.jsonl")
    runs = CellRuns(own, table, catalogue, question, options)
    return Bisection(own, table, catalogue, question, runs, log, rules, say)
