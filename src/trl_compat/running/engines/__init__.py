"""What runs the cells of a run, besides the pytest on this machine that is the default.

An engine only decides where cells run.  Campaign, store, verdicts and reports are the same.
"""

from __future__ import annotations

from typing import Protocol

from trl_compat.cells.plan import Cell
from trl_compat.running.campaign import RunSpec
from trl_compat.running.display import Display


class Engine(Protocol):
    """Runs cells and keeps each record on disk before the next is taken."""

    def execute(self, order: RunSpec, todo: list[Cell], display: Display, *, alone: bool) -> bool:
        """Runs cells; True if the user interrupted it.

        Args:
            order: the campaign; ``todo`` are the cells of it that are to be run.
            display: is told of each cell.
            alone: one cell at a time, so that nothing else can be to blame for what is seen.

        Raises:
            BadInput: something of the machines has to be mended first; the results are kept.
        """
