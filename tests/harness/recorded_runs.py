"""Runs of the command on records that are made by hand: nothing is executed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness.observations import RAISED, observed, record
from trl_compat import results
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cli.matrix import conduct
from trl_compat.files import documents, project
from trl_compat.running import matrix_run
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.store import CellRecord, ResolvedStack
from trl_compat.stacks.environments import locks
from trl_compat.stacks.held import needs

LOCK = ResolvedStack(lock_sha256="lock", packages={})


OLD = Selection(stacks=("old",), fixes=("none",))


@pytest.fixture
def where(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> project.Project:
    monkeypatch.setattr(project, "check_models", lambda *_: {"tiny-qwen2": "digest"})
    monkeypatch.setattr(locks, "kept", lambda *_: "lock")
    monkeypatch.setattr(needs, "check", lambda _: "")  # nothing is built
    return project.at(project_folder)


def keep(order: RunSpec, cell: Cell, seen: Observation, key: str | None = None) -> None:
    campaign = Campaign(order)
    kept = CellRecord(
        key=key or campaign.key(cell, "lock"),
        cell_id=cell.id,
        surroundings=LOCK,
        observations=(seen,),
        run=order.run,
    )
    campaign.store.write(kept)


def run(where: project.Project, monkeypatch: pytest.MonkeyPatch, engine: Any) -> int:
    monkeypatch.setattr(matrix_run, "execute", engine)
    return conduct(where, OLD, matrix_run.Options(jobs=1))


def as_expected(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
    for cell in todo:
        broken = cell.expectation.outcome is Outcome.REPRODUCED
        keep(order, cell, observed(RAISED, RAISED) if broken else observed(record(), record()))
    return False


def outcomes(where: project.Project) -> dict[str, Outcome]:
    found = results.read(where.reports / "results.json")
    assert found is not None
    return {cell.variant: cell.outcome for cell in found.cells}


def read_by(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each YAML file is read from now on, by its name."""
    found: Counter[str] = Counter()
    load = documents.load

    def counted(path: Path, model: type[Any]) -> Any:
        found[path.name] += 1
        return load(path, model)

    monkeypatch.setattr(documents, "load", counted)
    return found
