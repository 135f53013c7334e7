"""pytest as the engine of a campaign: one item per cell, distributed over workers by pytest-xdist.

pytest runs in the harness's own interpreter and collects ``tests/reproductions``; the ranks execute
the module itself, inside the stack's interpreter.  If pytest were installed into a stack, or put on
its path, it would add packages that the stack's users never had (and some change outcomes).

All cells of a stack go to one worker, which builds the stack's environment, keeps one parent
process with the imports done, and runs the cells one after the other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.running.campaign import Campaign, RunSpec, agrees
from trl_compat.runtime import confine

BAD_INPUT = "bad-input"
CAMPAIGN = pytest.StashKey[Campaign]()


class Deviation(Exception):
    """A cell's outcome is not the one that its advisory predicts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the campaign."""
    parser.addoption("--campaign", type=Path, help="the run specification, written by trl-compat")


def pytest_configure(config: pytest.Config) -> None:
    """Reads the campaign, in the controller and in every worker."""
    path = config.getoption("--campaign")
    order = RunSpec.model_validate_json(Path(path).read_bytes())
    config.stash[CAMPAIGN] = Campaign(order)
    confine.adopt_orphans()
    if "PYTEST_XDIST_WORKER" in os.environ:
        confine.die_with_parent()


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Takes every module of ``tests/reproductions`` that a cell of the campaign needs."""
    campaign = parent.config.stash[CAMPAIGN]
    if any(campaign.reproduction(cell) == file_path for cell in campaign.order.cells):
        collector: ReproductionFile = ReproductionFile.from_parent(parent, path=file_path)
        return collector
    return None


class ReproductionFile(pytest.File):
    """A reproduction: its items are the cells of the campaign that run it."""

    def collect(self) -> Iterator[pytest.Item]:
        """The cells."""
        campaign = self.config.stash[CAMPAIGN]
        for cell in campaign.order.cells:
            if campaign.reproduction(cell) == self.path:
                # xdist's loadgroup reads the group behind the '@'.  Said here, because xdist 3.8
                # cannot add it to the items of pytest 9.
                nodeid = f"{self.nodeid}::{cell.id}@{self.group(campaign.order, cell)}"
                item: CellItem = CellItem.from_parent(self, name=cell.id, nodeid=nodeid, cell=cell)
                yield item

    @staticmethod
    def group(order: RunSpec, cell: Cell) -> str:
        """The cells that go to one worker: those of a stack, or of a failure with its control."""
        return f"{cell.stack}+{cell.failure}" if order.by_failure else cell.stack


class CellItem(pytest.Item):
    """One cell; passes if its outcome is the expected one."""

    def __init__(self, *, cell: Cell, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell
        self.user_properties.append(("cell", cell.id))

    def runtest(self) -> None:
        """Runs the cell; its record is on disk before anything else is done."""
        campaign = self.config.stash[CAMPAIGN]
        run = campaign.confirm if campaign.order.confirm else campaign.run
        try:
            verdict = run(self.cell)
        except BadInput as error:
            # For the command, which is another process: it ends with this sentence.
            order = Path(self.config.getoption("--campaign"))
            with contextlib.suppress(OSError):
                order.with_name(BAD_INPUT).write_text(str(error), encoding="utf-8")
            raise
        if not agrees(self.cell.expectation, verdict):
            raise Deviation(sentence(self.cell, verdict))
        if verdict.outcome in (Outcome.NOT_APPLICABLE, Outcome.UNAVAILABLE):
            pytest.skip(f"{verdict.outcome}: {verdict.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One sentence; the evidence is in the record."""
        match excinfo.value:
            case Deviation() | BadInput():
                return str(excinfo.value)
            case OSError() as error:
                return f"its record could not be saved: {error.strerror or error}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the item comes from."""
        return self.path, None, self.cell.id


def sentence(cell: Cell, verdict: Verdict) -> str:
    """What deviates in a cell, for people."""
    reason = f": {verdict.reason}" if verdict.reason else ""
    return f"{cell.id}: expected {cell.expectation.outcome}, is {verdict.outcome}{reason}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the items into the order of the campaign: stack by stack, controls first."""
    places = {cell.id: place for place, cell in enumerate(config.stash[CAMPAIGN].order.cells)}
    items.sort(key=lambda item: places.get(item.name, -1))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends every process of the campaign."""
    campaign = config.stash.get(CAMPAIGN, None)
    if campaign is not None:
        campaign.close()
