"""How many of the possible combinations were run, and what became of the others.

A combination is stack × variant × model, unfixed, over all stacks of the results and all variants
of all reproductions.  What the matrix leaves out has a reason; the rest was not selected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.results import Results


@dataclass(frozen=True)
class Coverage:
    """Counts of combinations, and the reasons of those that the matrix leaves out."""

    possible: int
    run: int
    left_out: tuple[tuple[str, int], ...]

    @property
    def not_selected(self) -> int:
        """Combinations that nothing speaks against and that were not run."""
        return max(0, self.possible - self.run - sum(count for _, count in self.left_out))


def coverage(document: Results, catalogue: Catalogue, failure: str | None = None) -> Coverage:
    """The coverage of one failure, or of all."""
    failures = [failure] if failure else list(catalogue.failures)
    models = {cell.model for cell in document.cells}
    variants = sum(len(catalogue.reproduction(name).variants) for name in failures)
    run = {
        (cell.stack, cell.failure, cell.variant, cell.model)
        for cell in document.cells
        if not cell.fixed and cell.failure in failures
    }
    left = Counter(n.reason for n in document.not_run if n.failure in failures)
    possible = len(document.stacks) * variants * len(models)
    return Coverage(possible, len(run), tuple(left.most_common()))
