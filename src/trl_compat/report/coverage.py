"""How many of the possible combinations were run, and what happened to the others.

A combination is stack × variant × model, unfixed, over all stacks of the results and all variants
of all reproductions.  Excluded combinations have a reason; the rest was not selected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.report.counts import WORDS
from trl_compat.results import Results


@dataclass(frozen=True)
class Coverage:
    """Counts of combinations.

    Attributes:
        unreached: what could not be run, by what kept it from running, in words.
        left_out: the reasons of those that the matrix leaves out.
    """

    possible: int
    run: int
    unreached: tuple[tuple[str, int], ...]
    left_out: tuple[tuple[str, int], ...]

    @property
    def not_selected(self) -> int:
        """Combinations that nothing speaks against and that were not tried."""
        others = (*self.unreached, *self.left_out)
        return max(0, self.possible - self.run - sum(count for _, count in others))


def coverage(document: Results, catalogue: Catalogue, failure: str | None = None) -> Coverage:
    """The coverage of one failure, or of all."""
    failures = [failure] if failure else list(catalogue.subjects)
    models = {cell.model for cell in document.cells}
    variants = sum(len(catalogue.reproduction(name).variants) for name in failures)
    places: dict[tuple[str, str, str, str], set[Outcome]] = {}
    for cell in document.cells:
        if not cell.fixed and cell.failure in failures:
            place = (cell.stack, cell.failure, cell.variant, cell.model)
            places.setdefault(place, set()).add(cell.outcome)
    run = sum(any(outcome.ran for outcome in seen) for seen in places.values())
    unreached = Counter(
        WORDS[min(seen, key=list(Outcome).index)]
        for seen in places.values()
        if not any(outcome.ran for outcome in seen)
    )
    left = Counter(
        n.reason
        for n in document.not_run
        if n.failure in failures and (n.stack, n.failure, n.variant, n.model) not in places
    )
    possible = len(document.stacks) * variants * len(models)
    return Coverage(possible, run, tuple(unreached.most_common()), tuple(left.most_common()))
