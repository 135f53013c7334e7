"""Executed cells that say something else than a record's ranges do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.advisories import Advisory
from trl_compat.publishing.checking.evidence import Evidence, not_there, scope_of, unknown_commit


@dataclass(frozen=True)
class Contradiction:
    """Cells of one stack that contradict one place of a record in the same way.

    Attributes:
        place: ``affected 3``, ``available``, or ``affected`` where no scope covers them.
        scope: the number of the scope, from 1; 0 where there is none.
        text: what they do, as the rest of a sentence.
    """

    failure: str
    place: str
    scope: int
    text: str
    evidence: tuple[Evidence, ...]

    @property
    def stack(self) -> str:
        """The stack of its cells."""
        return self.evidence[0].cell.stack

    @property
    def key(self) -> tuple[str, ...]:
        """The same for the same contradiction of an edited record."""
        return (self.failure, *sorted(one.cell.id for one in self.evidence))


def contradictions(advisory: Advisory, evidence: Sequence[Evidence]) -> list[Contradiction]:
    """Every contradiction of a record."""
    found: dict[tuple[str, int, str, str], list[Evidence]] = {}
    known: dict[tuple[object, ...], tuple[str, int, str] | None] = {}
    for one in evidence:
        key = (*one.place, one.shows)
        if key not in known:
            known[key] = _contradicts(advisory, one)
        if (said := known[key]) is not None:
            place, scope, text = said
            found.setdefault((place, scope, text, one.cell.stack), []).append(one)
    return [
        Contradiction(advisory.id, place, scope, text, tuple(cells))
        for (place, scope, text, _), cells in found.items()
    ]


def _contradicts(advisory: Advisory, one: Evidence) -> tuple[str, int, str] | None:
    own = one.cell.failure == advisory.id
    if own and (place := not_there(one, advisory)):
        done = "the failure was reproduced" if one.shows else "the cell ran and passed"
        return place, 0, f"{done} where it cannot occur"
    covered = scope_of(one, advisory)
    if covered is None:
        if one.shows is None or unknown_commit(one, advisory):
            return None
        return "affected", 0, f"'{one.shows}' was seen outside of every scope"
    number, scope = covered
    if one.shows is None:
        return f"affected {number}", number, f"no '{scope.symptom}' in this scope"
    if one.shows != scope.symptom:
        return f"affected {number}", number, f"'{one.shows}' was seen, not '{scope.symptom}'"
    return None
