"""Ranks forked from a parent that has done the imports say what ranks of plain torchrun say.

On the smoke profile by default; ``--profile default`` compares every cell of that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.cells.fingerprint import differences, fingerprint
from trl_compat.cells.observation import Launch
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.files import project
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.execution.watch import Limits
from trl_compat.stacks import matrix

pytestmark = pytest.mark.matrix
Essences = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cells(request: pytest.FixtureRequest) -> list[Cell]:
    table = matrix.load(ROOT / "matrix.yaml")
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    return plan(table, catalogue, Selection(profile=request.config.getoption("--profile"))).cells


def run(
    cells: Iterable[Cell], state: Path, launch: Launch, compiled: list[str] | None = None
) -> Essences:
    """The fingerprint of every cell; what was compiled in their homes is added to ``compiled``."""
    where = project.at(ROOT, reports=state)
    order = RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        matrix=matrix.load(where.matrix_file),
        catalogue=advisories.load(where.advisories, where.reproductions),
        models=project.check_models(where, ("tiny-mistral", "tiny-qwen2")),
        cells=list(cells),
        limits=Limits(),
        preload=launch is Launch.PRELOADED,
    )
    campaign = Campaign(order)
    found = {}
    try:
        for cell in order.cells:
            campaign.run(cell)
            record = campaign.store.read(cell.id)
            assert record is not None
            (seen,) = record.observations
            if seen.not_started is None:
                assert seen.launch is launch
            found[cell.id] = fingerprint(seen)
            if compiled is not None and campaign._runner is not None:
                extensions = campaign._runner.home / "extensions"
                compiled += [f"{cell.id}: {path}" for path in extensions.rglob("*")]
    finally:
        campaign.close()
    return found


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    return []


@pytest.fixture(scope="module")
def preloaded(
    cells: list[Cell], compiled: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Essences:
    return run(cells, tmp_path_factory.mktemp("forward"), Launch.PRELOADED, compiled)


def test_the_order_of_cells_does_not_matter(
    cells: list[Cell], preloaded: Essences, tmp_path: Path
) -> None:
    # Stack by stack still: within a stack is where one cell could leave something to another.
    stacks = list(dict.fromkeys(cell.stack for cell in cells))
    backwards = sorted(cells, key=lambda cell: (stacks.index(cell.stack), -cells.index(cell)))
    assert [c.id for c in backwards] != [c.id for c in cells]
    assert differences(run(backwards, tmp_path, Launch.PRELOADED), preloaded) == []


def test_plain_torchrun_says_the_same(
    cells: list[Cell], preloaded: Essences, tmp_path: Path
) -> None:
    # A fix's standalone form differs from its entry in what is executed, not in how ranks start.
    some = [cell for cell in cells if not str(cell.fix).endswith("-standalone")]
    by_torchrun = run(some, tmp_path, Launch.TORCHRUN)
    assert differences(by_torchrun, {name: preloaded[name] for name in by_torchrun}) == []


def test_nothing_is_compiled_in_a_cell(preloaded: Essences, compiled: list[str]) -> None:
    assert preloaded
    assert compiled == []
