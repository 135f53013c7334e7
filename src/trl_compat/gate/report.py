"""The result of a gate as data: texts, findings and the exit code are derived from it.

Reports with ``rung``, the old name of the key ``verdict``, can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import AliasChoices, Field

import trl_compat
from trl_compat.advisories import Severity
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import EXIT_FINDINGS, EXIT_HARNESS, EXIT_OK
from trl_compat.files.models import FrozenModel
from trl_compat.gate.judgement import ChangeVerdict, Judgement
from trl_compat.usage.ignores import Ignore


class SideReport(FrozenModel):
    """A side of the gate; versions and lock are missing if it could not be resolved.

    Attributes:
        given: what the user named.
        stack: the name of the stack that it is.
        versions: of the packages under test, empty for one that it does not have.
    """

    given: str
    stack: str = ""
    python: str = ""
    versions: dict[str, str] = {}
    lock_sha256: str = ""
    notes: tuple[str, ...] = ()


class Seen(FrozenModel):
    """The outcome of a cell and its date."""

    outcome: Outcome
    at: str
    evidence: str
    log: str | None


class CellComparison(FrozenModel):
    """One cell in both stacks; ``trainer`` is empty where any may be used."""

    variant: str
    model: str
    trainer: str
    control: bool
    reference: Seen | None
    candidate: Seen | None
    verdict: ChangeVerdict = Field(validation_alias=AliasChoices("verdict", "rung"))
    blocks: bool
    why: str

    @property
    def seen(self) -> tuple[Seen | None, Seen | None]:
        """What the reference showed, and the candidate."""
        return self.reference, self.candidate

    @property
    def judgement(self) -> Judgement:
        """The judgement that was made of it."""
        return Judgement(self.verdict, self.why, self.blocks)


class RemedyReport(FrozenModel):
    """What helps on the candidate.

    Attributes:
        proven: ran in the candidate's own cells and passed in all of them; None if it was not run.
    """

    failure: str
    name: str = ""
    text: str
    snippet: str = ""
    cost: str = ""
    proven: bool | None = None


class FailureReport(FrozenModel):
    """The verdict on one failure: that of its worst cell."""

    failure: str
    title: str
    severity: Severity
    reference_url: str
    verdict: ChangeVerdict = Field(validation_alias=AliasChoices("verdict", "rung"))
    blocks: bool
    why: str
    places: tuple[CellComparison, ...]
    remedies: tuple[RemedyReport, ...] = ()
    ignored: Ignore | None = None

    @property
    def stops(self) -> bool:
        """Whether it stops the upgrade: it blocks and is not ignored."""
        return self.blocks and self.ignored is None


class GateReport(FrozenModel):
    """The whole report.

    Attributes:
        unresolvable: why the candidate cannot be installed; empty if it can.
        expired: ignores that have expired.
        unused: ignores of failures that do not block.
        command: the command that runs the gate again.
    """

    schema_version: Literal[1] = 1
    generated_at: str
    harness_version: str = trl_compat.__version__
    command: str
    reference: SideReport
    candidate: SideReport
    unresolvable: str = ""
    failures: tuple[FailureReport, ...] = ()
    expired: tuple[Ignore, ...] = ()
    unused: tuple[Ignore, ...] = ()
    exit_code: int = EXIT_OK

    @property
    def headline(self) -> str:
        """The answer in one line."""
        if self.unresolvable:
            return "⛔ The candidate cannot be installed"
        if self.exit_code == EXIT_HARNESS:
            return "⚠️ The harness failed in some cells: run the gate again"
        stopping = [f for f in self.failures if f.stops]
        regressions = [f for f in stopping if f.verdict is ChangeVerdict.REGRESSION]
        if regressions:
            return f"⛔ Do not upgrade: {_count(len(regressions), 'regression')}"
        if stopping:
            return f"⚠️ Cannot tell: {_count(len(stopping), 'failure')} without a result"
        if self.expired:
            return f"⛔ {_count(len(self.expired), 'ignore')} expired: review it"
        if nothing_told(self.failures):
            return "⚠️ Cannot tell: no cell could be compared"
        return "✅ You may upgrade: nothing that passes on the reference fails on the candidate"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number != 1 else ''}"


def exit_code(
    failures: Sequence[FailureReport], expired: Sequence[Ignore], unresolvable: str = ""
) -> int:
    """1 where something stops the upgrade or nothing could be told, 70 where the harness failed."""
    stopping = [place for f in failures if f.stops for place in f.places if place.blocks]
    ours = [place for place in stopping if _harness_failed(place)]
    if unresolvable or expired or len(stopping) > len(ours):
        return EXIT_FINDINGS
    places = [place for failure in failures for place in failure.places]
    if any(map(_harness_failed, places)):
        return EXIT_HARNESS
    return EXIT_FINDINGS if nothing_told(failures) else EXIT_OK


def nothing_told(failures: Sequence[FailureReport]) -> bool:
    """Whether cells were wanted and not one could be compared; such a gate is never green."""
    places = [place for failure in failures for place in failure.places]
    return bool(places) and all(
        place.verdict is ChangeVerdict.CANNOT_TELL
        and not all(seen and seen.outcome.ran for seen in place.seen)
        for place in places
    )


def _harness_failed(place: CellComparison) -> bool:
    return any(seen and seen.outcome is Outcome.HARNESS_ERROR for seen in place.seen)


def worst(places: Sequence[CellComparison]) -> CellComparison:
    """The cell that speaks for a failure."""
    return max(places, key=lambda place: place.judgement.weight)
