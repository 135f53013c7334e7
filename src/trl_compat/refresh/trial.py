"""Runs some stacks on the failures of a profile, from a generated matrix, as the gate does.

Cells are kept where those of the matrix are, so that an interrupted trial goes on where it stopped;
its reports lie in a folder of their own, and the project's are not touched.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

import yaml

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells.plan import UNFIXED, Selection
from trl_compat.files.project import Project
from trl_compat.files.writing import write_atomically
from trl_compat.results import Results
from trl_compat.running import display, matrix_run
from trl_compat.stacks.matrix import Matrix, Profile, Selector, Stack


class Interrupted(KeyboardInterrupt):
    """The user interrupted a trial.

    Attributes:
        document: the results of the stacks that were finished.
    """

    def __init__(self, document: Results) -> None:
        super().__init__()
        self.document = document


def run(
    where: Project,
    catalogue: Catalogue,
    table: Matrix,
    folder: str,
    options: matrix_run.Options,
    device: str = "cpu",
) -> Results:
    """Runs every unfixed cell of a generated matrix, with the controls.

    Raises:
        Interrupted: the user interrupted it; what was observed is kept.
        BadInput: something given is wrong, or a source is out of reach.
        HarnessError: cells have no record.
    """
    reports = where.state / "refresh" / folder
    own = Project(where.root, reports / "matrix.yaml", reports, where.state)
    write_atomically(own.matrix_file, _text_of(table))
    (profile,) = table.profiles
    selection = Selection(profile=profile, fixes=(UNFIXED,), device=device)
    console = display.console_of(sys.stderr)
    ran = matrix_run.run(own, table, catalogue, selection, options, console)
    document = ran.with_logs(ran.over(None))
    if ran.interrupted:
        ran.show_end(document)
        planned = Counter(cell.stack for cell in ran.planned.cells)
        raise Interrupted(finished(document, planned))
    ran.check_complete()
    results.write(own.reports / "results.json", document)
    return document


def finished(document: Results, planned: Mapping[str, int]) -> Results:
    """The results of the stacks of which every planned cell has one."""
    have = Counter(cell.stack for cell in document.cells)
    whole = {name for name, count in planned.items() if have[name] == count}
    return document.model_copy(
        update={
            "stacks": {name: s for name, s in document.stacks.items() if name in whole},
            "cells": [cell for cell in document.cells if cell.stack in whole],
        }
    )


def matrix_of(
    table: Matrix, stacks: Mapping[str, Stack], failures: tuple[str, ...], models: tuple[str, ...]
) -> Matrix:
    """The matrix of a trial: default variants of the failures, on every one of the stacks."""
    select = Selector(stacks=tuple(stacks), failures=failures, models=models)
    profile = Profile(about="what refresh runs on stacks of new releases", select=(select,))
    excludes = tuple(
        e for e in table.excludes if e.grid is None and (e.stack is None or e.stack in stacks)
    )
    return Matrix(
        models=table.models,
        stacks=dict(stacks),
        profiles={"refresh": profile},
        excludes=excludes,
    )


def failures_of(table: Matrix, profile: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The failures that a profile runs, in the order of the catalogue; all if it names none."""
    named = [block.failures for block in table.profiles[profile].select]
    if not all(named):
        return catalogue.failures
    return tuple(f for f in catalogue.failures if any(f in failures for failures in named))


def _text_of(table: Matrix) -> str:
    data = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return "# Written by trl-compat refresh.\n" + yaml.safe_dump(data, sort_keys=False)
