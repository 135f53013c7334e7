"""Which versions work together: for each TRL release the newest set of packages that was proven.

Proven means: every known failure that was run with the set passes, or is not applicable, or every
failing cell has a fix that passes in the same place.  Failures that were not run are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trl_compat.cells.outcome import Outcome
from trl_compat.report import tables
from trl_compat.results import Results


@dataclass(frozen=True)
class ProvenSet:
    """A stack and what is known of each failure there, by id.

    Attributes:
        works: passes, or there is nothing to fail.
        with_fix: fails, and a fix was proven for every failing cell.
        unproven: anything else that was run, with its outcome.
        not_run: no cell, or none that this machine could reach.
    """

    stack: str
    works: tuple[str, ...]
    with_fix: tuple[str, ...]
    unproven: tuple[tuple[str, Outcome], ...]
    not_run: tuple[str, ...]

    @property
    def proven(self) -> bool:
        """Whether everything that was run is right, with fixes where they are needed."""
        return not self.unproven and bool(self.works or self.with_fix)


def proven_sets(document: Results, failures: Sequence[str]) -> list[ProvenSet]:
    """One set per TRL release, newest release first.

    Of several stacks with one release a proven one comes before one that is not, then the one of
    which more was run, then the newest.
    """
    best: dict[str, ProvenSet] = {}
    summaries = tables.summaries_of(document.cells)
    for name in tables.newest_first(document):
        found = _of(summaries, failures, name)
        release = document.stacks[name].trl
        if release not in best or _rank(found) > _rank(best[release]):
            best[release] = found
    return list(best.values())


def _rank(found: ProvenSet) -> tuple[bool, int]:
    return found.proven, -len(found.not_run)


def _of(
    summaries: Mapping[tuple[str, str], tables.Summary], failures: Sequence[str], stack: str
) -> ProvenSet:
    works, with_fix, unproven, not_run = [], [], [], []
    for failure in failures:
        match summaries.get((stack, failure)):
            case None:
                not_run.append(failure)
            case tables.Summary(outcome=Outcome.PASS | Outcome.NOT_APPLICABLE):
                works.append(failure)
            case tables.Summary(outcome=Outcome.REPRODUCED, fixed=True):
                with_fix.append(failure)
            case tables.Summary(outcome=Outcome.UNAVAILABLE):
                not_run.append(failure)  # as little is known of it as without any cell
            case tables.Summary(outcome=outcome):
                unproven.append((failure, outcome))
    return ProvenSet(stack, tuple(works), tuple(with_fix), tuple(unproven), tuple(not_run))
